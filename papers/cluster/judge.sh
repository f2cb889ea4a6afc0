#!/bin/sh
# Measures an all-reduce and its parts in turn, and writes what `cluster predict` reads into a folder.
#
#   papers/cluster/judge.sh FOLDER --on cpu --nic soft
#   papers/cluster/judge.sh FOLDER --on gpu --nic soft-gpu
#
# PROGRAMS names a folder with the built programs, for a machine without Rust. RUN is put before each of them, such as
# "taskset -c 0,1". TIMES says how often everything is measured (3), RANKS which numbers of ranks (2,4,8).
set -eu
folder=$1
shift
programs=${PROGRAMS:-target/demo}
ranks=${RANKS:-2,4,8}
case " $* " in
    *" gpu "*) threads=128 queues=8 post="block of 256, one doorbell" ;;
    *) threads=32 queues=2 post="warp, one doorbell, exclusive" ;;
esac
measure() {
    to=$1 program=$2
    shift 2
    # shellcheck disable=SC2086 # RUN is a command and its arguments
    ${RUN:-} "$programs/$program" "$@" --json >>"$folder/$to.json"
}
mkdir -p "$folder"
for _ in $(seq "${TIMES:-3}"); do
    measure inbound bench inbound "$@" --threads $threads --sizes 64 --rounds 100
    for bytes in 64 64K; do
        measure ladder bench bandwidth "$@" --ladder --queues $queues --from $bytes --to $bytes --repetitions 3
    done
    measure posting bench posting "$@" --only posting --case "$post" --repetitions 3
    measure additions allreduce "$@" --additions --ranks "$ranks" --seconds 0.2
    measure allreduce allreduce "$@" --ranks "$ranks" --sizes 256K,1M,4M --ways posted --seconds 0.3
done
