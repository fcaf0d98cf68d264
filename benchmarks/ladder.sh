#!/usr/bin/env bash
# The whole ladder on a GPU: every rung with its variants, the winner of each size and the libraries,
# at the sizes of `--preset ladder`, and what the GPU reaches at most.
#
#   benchmarks/gpu_box.sh run benchmarks/ladder.sh COMMIT OUT_FOLDER
#
# SMALL: sizes before 8192, a process for each of these lists; empty for none, and then the winner of
# 8192 alone is tuned. LARGE: kernels at 8192, by default the same as at the other sizes; there they
# take most of the time.
# Writes ladder.json (all rows), ladder.txt (the same as tables), ceilings.json and .txt to OUT_FOLDER.
# As ladder_h200.json and so on in benchmarks/results they are shown by docs/ladder.md:
# `python benchmarks/ladder_pages.py --update` writes it.

set -euo pipefail

commit=${1:?which commit is this}
out=${2:?a folder for the results}
libraries=cublas_f32,cublas_tf32,cublas_bf16,cublas_f16
libraries+=,torch_f32,torch_bf16,torch_f16,triton_f32,triton_bf16,triton_f16
libraries+=,cutlass_f32,cutlass_bf16,cutlass_f16
all=variants,winner,$libraries
small=${SMALL-"128,256,512 1024,2048 4096,4096x256x1024"}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export AUTOGEMM_DB=$work/autogemm.db

problems=(--preset ladder)
[[ -n $small ]] || problems=(--size 8192)
tune=(autogemm tune "${problems[@]}" --require-gpu --trials 6 --finalists 2 --rounds 8)
tune+=(--no-certify --quiet)
bench=(autogemm bench --rounds 10 --json)

# Seconds since the script began, to standard error.
lap() {
    printf '%4d s: %s\n' "$SECONDS" "$1" >&2
}

"${tune[@]}" >"$out/tune.txt" 2>&1 || tail -n 3 "$out/tune.txt" >&2
lap "winners tuned"
autogemm gpus --measure >"$out/ceilings.txt"
autogemm gpus --measure --json >"$out/ceilings.json"
lap "ceilings measured"
number=0
# A process for a few sizes: one that breaks costs the sizes that break it alone.
part() {
    local kernels=$1 sizes=$2 to
    printf -v to '%s/part_%02d.json' "$out" "$((number += 1))"
    "${bench[@]}" --kernels "$kernels" --sizes "$sizes" >"$to" && lap "$sizes" && return
    rm -f "$to"
    [[ $sizes != *,* ]] || for one in ${sizes//,/ }; do part "$kernels" "$one"; done
}
for sizes in $small; do
    part "$all" "$sizes"
done
part "${LARGE:-$all}" 8192

python3 - "$out" <<'PYTHON'
import json
import sys
from pathlib import Path

out = Path(sys.argv[1])
parts = sorted(out.glob("part_*.json"))
rows = [row for path in parts for row in json.loads(path.read_text())]
(out / "ladder.json").write_text(json.dumps(rows, indent=1) + "\n")
PYTHON
{
    printf 'commit %s; winners: %s%s\n' "$commit" "${tune[*]}" "${LARGE:+; LARGE=$LARGE}"
    autogemm bench --show "$out/ladder.json" --wide
    printf '\nautogemm gpus --measure\n'
    cat "$out/ceilings.txt"
} >"$out/ladder.txt"
lap "done"
