#!/usr/bin/env bash
# The main job on a GPU, start to end, from an empty database, as a person would run it:
# tune, export, nvcc, run, compute-sanitizer; then a kill -9 in the middle of a run, and the resume.
#
#   benchmarks/gpu_box.sh run benchmarks/main_job.sh COMMIT OUT_FOLDER
#
# Everything is printed, and kept in OUT_FOLDER/main_job.txt with the exported files beside it.

set -uo pipefail

commit=${1:?which commit is this}
out=${2:?a folder for the results}
budget=${BUDGET:-60s}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export AUTOGEMM_DB=$work/autogemm.db AUTOGEMM_CACHE=$work/cache

say() {
    printf '\n$ %s\n' "$*"
    "$@"
}

one_problem() {
    local name=$1 file=$work/best.cu arch
    shift
    time say autogemm tune --gpu auto --require-gpu --budget "$budget" "$@"
    say autogemm export "$@" --force "$file"
    arch=$(sed -n 's/.*-arch=\(sm_[0-9]*\).*/\1/p' "$file" | head -n 1)
    say nvcc -O3 -arch="$arch" "$file" -o "$work/best"
    say "$work/best"
    cp "$file" "$out/best_$name.cu"
}

sanitize() {
    # A size that the kernel has code for, small enough for the tools.
    say compute-sanitizer --tool memcheck "$work/best" "$@" --rounds 0
    say compute-sanitizer --tool racecheck "$work/best" "$@" --rounds 0
}

kill_and_resume() {
    local pid tune=(autogemm tune --size 2048 --trials 200 --budget none --require-gpu --seed 7)
    printf '\n$ %s & sleep 12; kill -9\n' "${tune[*]}"
    "${tune[@]}" >"$work/killed.txt" 2>&1 &
    pid=$!
    sleep 12
    pkill -9 -f 'autogemm tune --size 2048'
    wait "$pid" 2>/dev/null
    tail -n 3 "$work/killed.txt"
    say autogemm db list --size 2048
    say "${tune[@]}"
    say autogemm db list --size 2048
}

main() {
    printf 'autogemm main job, commit %s, %s\n' "$commit" "$(date -u +%F)"
    printf 'command: benchmarks/gpu_box.sh run benchmarks/main_job.sh %s OUT\n' "$commit"
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    one_problem 4096 --size 4096
    sanitize 512
    one_problem 1000 --size 1000
    # Multiples of as much as those of the tuned size: its kernel has code for no others.
    sanitize 136 152 64
    one_problem 4096x256x1024 --size 4096x256x1024
    one_problem 4096_tt --size 4096 --layout tt
    kill_and_resume
    say autogemm db best
}

# Without the name of the temporary folder.
main 2>&1 | sed -u "s#$work/##g" | tee "$out/main_job.txt"
