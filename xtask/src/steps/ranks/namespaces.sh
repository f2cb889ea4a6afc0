#!/bin/sh
# Runs 4 ranks of a program in two network namespaces, which a pair of virtual interfaces joins:
# namespaces.sh ROOT PROGRAM ARGUMENTS
# It needs root. ROOT is where rank 0 listens: 10.77.0.1:PORT or [fd77::1]:PORT.
set -eu
root=$1
shift
one=warpbell-$$-1 two=warpbell-$$-2
trap 'ip netns del $one; ip netns del $two' EXIT
ip netns add $one
ip netns add $two
ip link add veth1 netns $one type veth peer name veth2 netns $two
for number in 1 2; do
    name=warpbell-$$-$number
    # Machines have bridges with the same address.
    ip -n $name link add bridge0 type bridge
    ip -n $name addr add 172.17.0.1/16 dev bridge0
    case $root in
        10.*) ip -n $name addr add 10.77.0.$number/24 dev veth$number ;;
        *) ip -n $name addr add fd77::$number/64 dev veth$number nodad ;;
    esac
    for interface in lo bridge0 veth$number; do ip -n $name link set $interface up; done
done
WARPBELL_SECRET=$(od -An -N 32 -tx1 /dev/urandom | tr -d ' \n')
export WARPBELL_LAUNCHER=hand WARPBELL_ROOT="$root" WARPBELL_SIZE=4 WARPBELL_SECRET
processes=
for rank in 0 1 2 3; do
    name=$one
    [ $rank -lt 2 ] || name=$two
    WARPBELL_RANK=$rank ip netns exec $name "$@" &
    processes="$processes $!"
done
status=0
for process in $processes; do wait "$process" || status=$?; done
exit $status
