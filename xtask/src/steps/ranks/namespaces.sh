#!/bin/sh
# Runs 4 ranks of a program in two network namespaces, which a pair of virtual interfaces joins:
# namespaces.sh WAY ROOT PROGRAM ARGUMENTS
# It needs root. ROOT is where rank 0 listens: 10.77.0.1:PORT or [fd77::1]:PORT. WAY is how the ranks start:
#   hand     each by this script
#   rsh      by the launcher $LAUNCHER, with a script in ssh's place
#   ssh      by the same, from the first namespace, with OpenSSH's server in the second
#   mpirun   by Open MPI from the first namespace, with a script in ssh's place
set -eu
way=$1
root=$2
shift 2
one=warpbell-$$-1 two=warpbell-$$-2
folder=$(mktemp -d)
clean() {
    for name in $one $two; do
        # A server of ssh's may be there.
        for process in $(ip netns pids $name); do kill "$process" || true; done
        ip netns del $name
    done
    rm -rf "$folder"
}
trap clean EXIT
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

by_hand() {
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
    return $status
}

# As ssh does: the first argument is the host, the rest a command for its shell. Each machine has a folder of its own for
# short-lived files, where daemons of Open MPI do not meet.
cat > "$folder/rsh" << 'RSH'
#!/bin/sh
host=$1
shift
TMPDIR=$(mktemp -d "${0%/*}/XXXXXX")
export TMPDIR
exec ip netns exec "$host" sh -c "$*"
RSH
chmod +x "$folder/rsh"

by_rsh() {
    "$LAUNCHER" -n 4 --hosts $one:2,$two:2 --rsh "$folder/rsh" --address "$root" "$@"
}

by_ssh() {
    for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$folder/$key"; done
    # Where sshd gives up its privileges, says Debian.
    mkdir -p /run/sshd
    ip netns exec $two "$(command -v sshd || echo /usr/sbin/sshd)" -D -f /dev/null -h "$folder/host" \
        -o PidFile=none -o StrictModes=no -o AuthorizedKeysFile="$folder/user.pub" &
    # Before the user's own ssh on the path, so that the launcher calls ssh as it always does.
    cat > "$folder/ssh" << SSH
#!/bin/sh
exec $(command -v ssh) -F /dev/null -i "$folder/user" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
    -o ConnectionAttempts=60 "\$@"
SSH
    chmod +x "$folder/ssh"
    PATH="$folder:$PATH" ip netns exec $one "$LAUNCHER" -n 4 --hosts "$(uname -n):2,10.77.0.2:2" \
        --address "$root" "$@"
}

by_mpirun() {
    WARPBELL_SECRET=$(od -An -N 32 -tx1 /dev/urandom | tr -d ' \n')
    export WARPBELL_ROOT="$root" WARPBELL_SECRET
    # mpirun and its daemons would also try the bridges.
    TMPDIR=$folder ip netns exec $one "$(command -v mpirun.openmpi)" --allow-run-as-root -np 4 -H $one:2,$two:2 \
        --mca plm_rsh_agent "$folder/rsh" --mca oob_tcp_if_include veth1,veth2 \
        -x WARPBELL_ROOT -x WARPBELL_SECRET "$@"
}

by_"$way" "$@"
