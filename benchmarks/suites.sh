#!/usr/bin/env bash
# The suites of all element types on one GPU, each within its own time; what it reaches by then counts.
#
#   benchmarks/gpu_box.sh run benchmarks/suites.sh COMMIT OUT_FOLDER [f32 bf16 f16 tf32 emulated]
#
# Tables and their JSON go to OUT_FOLDER, and from there to benchmarks/results with the GPU's name.
# An H100 with 16 cores takes about seven minutes for all five. Large products are at the GPU's
# power limit, where times swing and the order of the search is that of a colder GPU: these have
# more rounds and more finalists.

set -uo pipefail

commit=${1:?which commit is this}
out=${2:?a folder for the results}
shift 2
(($#)) || set -- f32 bf16 f16 tf32 emulated
python=${PYTHON:-python3}
here=$(dirname "${BASH_SOURCE[0]}")
mkdir -p "$out"

suite() {
    local name=$1 seconds=$2 begin=$SECONDS code
    shift 2
    # Told by SIGINT, a suite ends with the shapes that it has.
    timeout -s INT -k 20 "$seconds" "$python" "$here/suite.py" --commit "$commit" --out "$out" \
        "$@" >"$out/$name.log" 2>&1
    code=$?
    printf '%-9s exit %d, %d s\n' "$name" "$code" $((SECONDS - begin))
    grep -E '^ +[0-9]+(x[0-9]+x[0-9]+)? |^geometric|^below|^not measured' "$out/$name.log" |
        cut -c1-100
}

for name; do
    case $name in
    f32) suite f32 230 --trials 100 --budget 3s --rounds 20 --max-error cublas ;;
    bf16 | f16 | tf32)
        suite "$name" 85 --dtype "$name" --trials 80 --budget 3s --rounds 40 --finalists 6
        ;;
    emulated) suite emulated 55 --emulation --trials 60 --budget 3s --rounds 20 ;;
    *) echo "suites.sh: no suite '$name': f32, bf16, f16, tf32, emulated" >&2 && exit 2 ;;
    esac
done
