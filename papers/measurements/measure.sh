#!/bin/sh
# Measures everything on one of this machine's GPUs, with the NIC on a CPU thread and on the GPU.
#
#   measure.sh [--out FOLDER] [--on gpu|cpu] [--gpu NUMBER] [STEP...]
#   measure.sh --list
#
# Data and plots go to FOLDER, by default the script's own. FOLDER/run.md gets the machine, the commit, and a row for
# each command. Without a STEP all steps run, and run.md is a new one. With STEPs run.md keeps the rows of other steps.
# --gpu takes another GPU than the first, which is number 0: so several GPUs measure at once, each with a folder of its
# own. --on cpu tries all this on CPU threads, with few repetitions. Its figures are of no use.
#
# The status is the number of commands that failed; 2, with a message, if nothing could begin.
#
#   PROGRAMS       a folder with the built programs, such as `bin` of a distribution. By default the folder `bin` beside
#                  the script; without one Cargo builds the programs
#   LIMIT          the most seconds for a command (300), and for each time of the suite
#   SUITE_TIMES    how often the suite runs (1)
#   RUST_CUDA_PTX  a folder with the other compiler's PTX, as in ptx/rust-cuda.tar.xz
#
# Options come from functions and variables as several words:
# shellcheck disable=SC2046,SC2086
set -u

steps='posting latency bandwidth ladder placement completions put collectives experts active trigger inbound proxy
report serving share kv demo suite litmus sanitizers two-gpus rust-cuda'

refuse() {
    echo "error: $*" >&2
    exit 2
}

absolute() {
    (cd "$1" && pwd) || refuse "$1 is no folder"
}

here=$(absolute "$(dirname "$0")") || exit 2
out=$here on=gpu gpu=0 chosen=''
while [ $# -gt 0 ]; do
    case $1 in
        --list)
            printf '%s\n' $steps
            exit
            ;;
        --out | --on | --gpu)
            [ $# -gt 1 ] || refuse "$1 wants a value"
            case $1 in
                --out) out=$2 ;;
                --on) on=$2 ;;
                --gpu) gpu=$2 ;;
            esac
            shift
            ;;
        -*) refuse "no such option: $1" ;;
        *)
            printf '%s\n' $steps | grep -qxF -e "$1" || refuse "no such step: $1 (--list prints all)"
            chosen="$chosen $1"
            ;;
    esac
    shift
done
case $on in
    gpu) host=soft-host ;;
    cpu) host=soft ;;
    *) refuse "--on is gpu or cpu, not $on" ;;
esac
case $gpu in
    '' | *[!0-9]*) refuse "--gpu is the number of a GPU, not $gpu" ;;
    0) place="--on $on" ;;
    *) place="--on $on --gpu $gpu" ;;
esac
[ $on = gpu ] || [ "$gpu" = 0 ] || refuse "--gpu wants --on gpu"
limit=${LIMIT:-300}
times=${SUITE_TIMES:-1}
commit=''
command -v timeout >/dev/null || refuse "there is no timeout, which is one of GNU's coreutils"

# The programs, and the commit they were built from.
checked_out() {
    revision=$(git -C "$here" rev-parse HEAD) || refuse "the commit is not known: $here is in no checkout"
    # What an earlier run measured has no influence on the programs.
    [ -z "$(git -C "$here" status --porcelain -- :/ ':!.')" ] || revision=$revision-dirty
    echo "$revision"
}
if [ -z "${PROGRAMS:-}" ] && [ -d "$here/bin" ]; then
    PROGRAMS=$here/bin
fi
if [ -n "${PROGRAMS:-}" ]; then
    programs=$(absolute "$PROGRAMS") || exit 2
    manifest=$programs/../manifest.json
    [ ! -f "$manifest" ] || commit=$(sed -n 's/^  "commit": "\(.*\)",$/\1/p' "$manifest")
    commit=${commit:-not known: the programs have no manifest}
else
    root=$here/../..
    commit=$(checked_out) || exit 2
    (cd "$root" && cargo build --profile demo --bins -p warpbell-bench -p warpbell-demo -p warpbell-hw-tests \
        -p warpbell-papers) || refuse "the build failed"
    programs=$(absolute "${CARGO_TARGET_DIR:-$root/target}/demo") || exit 2
fi
other_compiler=''
if [ -n "${RUST_CUDA_PTX:-}" ]; then
    other_compiler=$(absolute "$RUST_CUDA_PTX") || exit 2
fi
mkdir -p "$out" || exit 2
cd "$out" || exit 2

# The page: what ran, where, and how it ended.
gpus() {
    nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null || echo 'not known'
}
of_gpu() {
    gpus "$1" | sed -n "$((gpu + 1))p"
}
head_of_page() {
    echo '# One run'
    echo
    echo 'Commands run in the folder of this page. Times are those of whole commands.'
    echo
    echo '| | |'
    echo '|---|---|'
    echo "| commit | $commit |"
    echo "| kernels on | $on |"
    if [ $on = gpu ]; then
        echo "| GPU | $(of_gpu name), number $gpu of $(gpus name | wc -l) |"
        echo "| compute capability | $(of_gpu compute_cap) |"
        echo "| SM clock, maximum | $(of_gpu clocks.max.sm) |"
        echo "| driver | $(of_gpu driver_version) |"
        echo "| CUDA of the driver | $(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[^:]*Version: *\([0-9.]*\).*/\1/p') |"
    fi
    echo "| CPU | $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1), $(nproc) threads |"
    echo "| kernel | $(uname -sr) |"
    echo
    echo '| step | began (UTC) | command | status | time (s) | result |'
    echo '|---|---|---|---|---|---|'
}
head_of_page >run.head
if [ -n "$chosen" ] && [ -f run.md ]; then
    head -n "$(wc -l <run.head)" run.md | cmp -s - run.head || {
        rm run.head
        refuse "$out/run.md is of another commit or machine: choose another folder with --out, or run all steps"
    }
    for step in $chosen; do
        grep -v "^| $step |" run.md >run.head
        cat run.head >run.md
    done
    rm run.head
else
    mv run.head run.md
fi

ran=0 failed=0 skipped=0
# Adds a row: row COMMAND BEGAN STATUS SECONDS RESULT.
row() {
    result=$(printf '%s' "$5" | tr -d '\000-\037' | tr -s ' ' | sed 's/|/\\|/g')
    printf '| %s | %s | %s | %s | %s | %s |\n' "$step" "$2" "$1" "$3" "$4" "$result" | tee -a run.md
}
now() {
    date -u '+%Y-%m-%d %H:%M:%S'
}
skip() {
    skipped=$((skipped + 1))
    row – "$(now)" '**skipped**' – "$1"
}
last_line() {
    sed '/^[[:space:]]*$/d' "$1" | tail -n 1
}

# Runs a program, and adds its row: measure FILE PROGRAM ARGUMENT... FILE gets what the program prints, and a log
# beside it what the program says on stderr. What an earlier run left there goes first.
measure() {
    to=$1 program=$2 name=${1%.*}
    shift 2
    path=$programs/$program
    [ -e "$path" ] || path=$programs/papers/$program
    shown=$program
    for word; do
        case $word in *' '*) word="'$word'" ;; esac
        shown="$shown $word"
    done
    rm -f "$name.csv" "$name.svg" "$name.html"
    began=$(now) start=$(date +%s)
    timeout -k 10 "$limit" "$path" "$@" >"$to" 2>"$name.log" &
    child=$!
    wait $child
    status=$?
    seconds=$(($(date +%s) - start))
    ran=$((ran + 1))
    said=$(last_line "$to")
    case $status:$program:$said in
        0:*:Skipped:*)
            ran=$((ran - 1)) skipped=$((skipped + 1)) status='0 **skipped**'
            ;;
        0:demo:* | 0:suite:*) status='0 ok' ;;
        0:*) status='0 ok' said="[$to]($to)" ;;
        *)
            complaint=$(last_line "$name.log")
            failed=$((failed + 1)) said=${complaint:-$said}
            case $status in
                124) status='124 **timed out**' ;;
                *) status="$status **failed**" ;;
            esac
            ;;
    esac
    [ -s "$name.log" ] || rm -f "$name.log"
    row "\`$shown >$to\`" "$began" "$status" $seconds "$said"
}

# Ctrl-C ends the command and the run. The page has the rows until then.
child=''
trap '[ -z "$child" ] || kill "$child" 2>/dev/null; exit 130' INT TERM

# The options of a try on CPUs, or those that a GPU's figures are made with: sized TRY FULL.
sized() {
    [ $on = cpu ] || shift
    printf '%s\n' "$1"
}

for step in ${chosen:-$steps}; do
    case $step in
        posting)
            little=$(sized '--repetitions 1 --posts 32 --writes 500 --queues 1' '')
            measure posting.txt bench posting $place --nic soft-gpu $little --csv posting.csv --svg posting.svg
            measure posting-$host.txt bench posting $place --nic $host --only executing $little \
                --csv posting-$host.csv --svg posting-$host.svg
            ;;
        latency)
            for nic in $host soft-gpu; do
                measure latency-$nic.json bench pingpong $place --nic $nic $(sized '--sizes 8,64 --rounds 20' '') \
                    --json --svg latency-$nic.svg
                measure latency-$nic-without-record.json bench pingpong $place --nic $nic --without-record --sizes 8 \
                    $(sized '--rounds 20' '') --json
            done
            ;;
        bandwidth)
            little='--verbs write --to 64 --messages 64 --repetitions 1'
            measure bandwidth-$host.json bench bandwidth $place --nic $host \
                $(sized "$little" '--verbs write,read,send --to 1M') --batch 16 --json --svg bandwidth-$host.svg
            # All verbs and sizes would take minutes here.
            measure bandwidth-soft-gpu.json bench bandwidth $place --nic soft-gpu \
                $(sized "$little" '--verbs write --to 64K --repetitions 1') --batch 16 --json \
                --svg bandwidth-soft-gpu.svg
            ;;
        ladder)
            for nic in $host soft-gpu; do
                measure ladder-$nic.json bench bandwidth $place --nic $nic --ladder \
                    $(sized '--queues 2 --to 16 --messages 64 --repetitions 1' '') --json --svg ladder-$nic.svg
            done
            ;;
        placement)
            # An engine on a CPU reaches host memory only, so there is one placement with it.
            measure placement-soft-gpu.json bench placement $place --nic soft-gpu \
                $(sized '--sizes 8 --messages 64 --repetitions 1' '') --json --svg placement-soft-gpu.svg
            ;;
        completions)
            little='--queues 2 --repetitions 1 --polls 20 --load-ms 2'
            measure completions-$host.txt bench completions $place --nic $host \
                $(sized "$little" '--queues 128 --repetitions 5')
            # This NIC has room for 32 queue pairs.
            measure completions-soft-gpu.txt bench completions $place --nic soft-gpu \
                $(sized "$little" '--queues 1,8,15 --repetitions 5')
            ;;
        put)
            for nic in $host soft-gpu; do
                measure put-$nic.txt bench put $place --nic $nic $(sized '--rounds 20 --warm-up 2' '')
            done
            ;;
        collectives)
            little='--members 2 --words 16 --rounds 4 --repetitions 1'
            measure collectives-$host.txt bench collectives $place --nic $host $(sized "$little" '')
            # This NIC has room for 32 queue pairs.
            measure collectives-soft-gpu.txt bench collectives $place --nic soft-gpu $(sized "$little" '--members 5')
            ;;
        experts)
            for nic in $host soft-gpu; do
                measure experts-$nic.txt bench experts $place --nic $nic $(sized --quick '--blocks 8 --threads 256') \
                    --csv experts-$nic.csv
            done
            ;;
        active)
            little=$(sized '--messages 4 --rounds 20 --warm-up 2' '')
            for nic in $host soft-gpu; do
                measure active-$nic.txt bench active $place --nic $nic $little --csv active-$nic.csv
            done
            measure active-large.txt bench active $place --nic soft-gpu \
                $(sized "$little" '--words 4096 --blocks 8') --csv active-large.csv
            ;;
        trigger)
            for nic in $host soft-gpu; do
                measure trigger-$nic.txt bench trigger $place --nic $nic \
                    $(sized '--rounds 20 --warm-up 2 --chains 2' '')
            done
            ;;
        inbound)
            for nic in $host soft-gpu; do
                measure inbound-$nic.txt bench inbound $place --nic $nic \
                    $(sized '--sizes 8 --threads 32 --rounds 5 --warm-up 1' '')
            done
            ;;
        proxy)
            little='--groups 2 --rounds 20 --singles 20'
            for nic in $host soft-gpu; do
                measure proxy-$nic.txt bench proxy $place --nic $nic $(sized "$little" '--waiting-threads 1,8,64') \
                    --sizes 8,64,512,4K,64K
            done
            for line in registers memory locked; do
                # The lock is in a GPU's cache.
                [ $on:$line != cpu:locked ] || continue
                measure proxy-$line.txt bench proxy $place --nic $host --producer-line $line \
                    $(sized "$little --streaming 1M" '--groups 64 --threads 1 --drains 1 --streaming 1024M')
            done
            ;;
        report)
            measure applications.json report $place $(sized '--quick --only jacobi' '') --seconds 0.1 \
                --out applications.html --json
            ;;
        serving)
            for nic in $host soft-gpu; do
                measure serving-$nic.json serving $place --nic $nic --network superresolution,squeeze \
                    $(sized '--sides 16 --seconds 0.1' '--sides 56,224 --seconds 0.5') --json --svg serving-$nic.svg
            done
            # The paper's figure 7 has a minute.
            measure serving-over-time.json serving $place --nic soft-gpu --network superresolution,squeeze \
                $(sized '--sides 16 --seconds 0.4 --every 0.2' '--sides 224 --seconds 6 --every 1') --json \
                --csv serving-over-time.csv --svg serving-over-time.svg
            ;;
        share)
            for nic in $host soft-gpu; do
                measure share-matvec-$nic.json matvec $place --nic $nic --driver-alone \
                    $(sized '--sizes 4K --seconds 0.1' '--seconds 0.5') --json
                measure share-serving-$nic.json serving $place --nic $nic --driver-alone \
                    --network superresolution,squeeze \
                    $(sized '--sides 16 --seconds 0.1' '--sides 56,224 --seconds 0.5') --json
            done
            ;;
        kv)
            for nic in $host soft-gpu; do
                measure kv-$nic.txt kv $place --nic $nic $(sized '--sizes 16,64 --gets 20' '')
            done
            ;;
        demo)
            for nic in $host soft-gpu; do
                measure demo-$nic.txt demo $place --nic $nic $(sized --quick '')
            done
            ;;
        suite)
            each=$limit limit=$((limit * times))
            for nic in $host soft-gpu; do
                measure suite-$nic.txt suite --times $times $(sized '--tests deadlines,state' '') -- $place --nic $nic
            done
            limit=$each
            ;;
        litmus)
            measure litmus.txt suite litmus $place --nic soft-gpu
            ;;
        sanitizers)
            PATH=$PATH:/usr/local/cuda/bin
            if [ $on = cpu ]; then
                skip 'they look at kernels on a GPU'
            elif ! command -v compute-sanitizer >/dev/null; then
                skip 'compute-sanitizer is not installed'
            else
                for tool in memcheck racecheck synccheck; do
                    measure sanitizer-$tool.txt suite --under "compute-sanitizer --error-exitcode 9 --tool $tool" \
                        --tests verbs,shared,triggers -- $place --nic soft-host --slower 20
                done
            fi
            ;;
        two-gpus)
            # Kernels on one GPU, and the NIC on the other one.
            apart='--on gpu --nic soft-gpu --nic-gpu 1'
            if [ $on = cpu ] || [ "$gpu" != 0 ] || [ "$(gpus name | wc -l)" -lt 2 ]; then
                skip 'there is no GPU 1 beside GPU 0'
                continue
            fi
            measure demo-two-gpus.txt demo $apart --quick
            measure suite-two-gpus.txt suite --tests errors,triggers,gaspi,receive,verbs -- $apart
            measure latency-two-gpus.json bench pingpong $apart --sizes 8,64,4K --rounds 1000 --json \
                --svg latency-two-gpus.svg
            measure posting-two-gpus.txt bench posting $apart --only executing --sizes 8,64 --queues 1,8 \
                --in-flight 32,256 --writes 40000 --repetitions 3 --csv posting-two-gpus.csv
            measure allreduce-two-gpus.txt allreduce --on gpu --nic soft-gpu --gpus 0,1 --ranks 2,8 --sizes 64M \
                --seconds 0.2
            ;;
        rust-cuda)
            # The same programs with the other compiler's PTX, which goes where the commands run for the time.
            architecture=sm_$(of_gpu compute_cap | tr -d .)
            if [ $on = cpu ] || ! cp "${other_compiler:-/none}"/*".$architecture.ptx" . 2>/dev/null; then
                skip "RUST_CUDA_PTX names no folder with PTX for this GPU"
                continue
            fi
            given="--ptx kernels.$architecture.ptx --ptx soft_nic.$architecture.ptx"
            measure posting-rust-cuda.txt bench posting $place --nic soft-gpu $given --csv posting-rust-cuda.csv
            for nic in soft-host soft-gpu; do
                measure demo-rust-cuda-$nic.txt demo $place --nic $nic $given
                measure suite-rust-cuda-$nic.txt suite -- $place --nic $nic $given --ptx suite.$architecture.ptx
            done
            rm ./*".$architecture.ptx"
            ;;
    esac
done
echo "$ran commands ran, $failed failed; $skipped were skipped: $(pwd)/run.md"
exit $failed
