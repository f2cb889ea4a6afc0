#!/bin/sh
# Measures the papers' applications on this machine's first GPU, and writes data and pages into measurements/.
# PROGRAMS names a folder with the built programs, for a machine without Rust.
set -eu
cd "$(dirname "$0")/.."

run() {
    program=$1
    shift
    if [ -n "${PROGRAMS:-}" ]; then
        "$PROGRAMS/$program" --on gpu --json "$@"
    else
        cargo run --quiet --release -p warpbell-papers --bin "$program" -- --on gpu --json "$@"
    fi
}

# A GET by one-sided READs and by an active message.
for nic in soft-host soft-gpu; do
    run kv --nic $nic >"papers/measurements/kv-$nic.json"
    echo "papers/measurements/kv-$nic"
done
# Latency and the server's share of a core over a minute, as in figure 7 of the paper on inference serving.
run serving --nic soft-gpu --network superresolution,squeeze --sides 224 --seconds 60 --every 1 \
    --csv papers/measurements/serving-over-time.csv --svg papers/measurements/serving-over-time.svg \
    >papers/measurements/serving-over-time.json
echo papers/measurements/serving-over-time
# The applications with both NICs, on one page.
run report --out papers/measurements/applications.html >papers/measurements/applications.json
echo papers/measurements/applications
