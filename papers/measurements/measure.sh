#!/bin/sh
# Measures on this machine's first GPU, and writes data and plots beside this script.
# BENCH names the built command, for a machine without Rust.
set -eu
cd "$(dirname "$0")/../.."

run() {
    benchmark=$1
    shift
    if [ -n "${BENCH:-}" ]; then
        "$BENCH" "$benchmark" --on gpu --json "$@"
    else
        cargo run --quiet --release -p warpbell-bench -- "$benchmark" --on gpu --json "$@"
    fi
}

measure() {
    name=papers/measurements/$1
    shift
    run "$@" --svg "$name.svg" >"$name.json"
    echo "$name"
}

for nic in soft-host soft-gpu; do
    measure "latency-$nic" pingpong --nic $nic
    measure "ladder-$nic" bandwidth --nic $nic --ladder
done
measure bandwidth-soft-host bandwidth --nic soft-host --verbs write,read,send --to 1M --batch 16
# All of the other engine's would take minutes.
measure bandwidth-soft-gpu bandwidth --nic soft-gpu --verbs write --to 64K --batch 16 --repetitions 1
# An engine on the CPU reaches host memory only.
measure placement-soft-gpu placement --nic soft-gpu
