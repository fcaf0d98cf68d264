#!/usr/bin/env bash
# Records the FP32 searches that ship, on a GPU: db/recordings says what for.
#
#   benchmarks/gpu_box.sh run benchmarks/recordings.sh COMMIT OUT_FOLDER h200
#
# The third word is the GPU's short name in the files' names. About 40 s for each file on an H200.

set -euo pipefail

commit=${1:?which commit is this}
out=${2:?a folder for the results}
gpu=${3:?the short name of the GPU}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$out"

# Parameters that all of them hold.
held=(SPLIT_K=1 STREAM_BLOCKS=0 SLICES=shared PAD_A=4 PAD_B=0 VEC_LOAD=4 VEC_STORE=4 REG_STAGES=2)
held+=(HANDOVER=5 POINTERS=derived CHAIN_K=0 MIN_BLOCKS=1 FMA_ORDER=snake EDGES=guarded PACK=0)
held+=(PDL=none)

# record SIZE NAME=VALUES...: values replace those that are held.
record() {
    local size=$1 one fix=()
    shift
    for one in "${held[@]}"; do
        [[ " $*" == *" ${one%%=*}="* ]] || fix+=(--fix "$one")
    done
    for one in "$@"; do
        fix+=(--fix "$one")
    done
    python3 "$here/record.py" --commit "$commit" --rounds 30 --limit-seconds 60 \
        --family sgemm_simt --size "$size" "${fix[@]}" \
        --out "$out/sgemm_simt_${gpu}_${size}_nn.json.gz"
    printf '%4d s: %s\n' "$SECONDS" "$size"
}

record 1024 BM=32,64,128 BN=64,128 BK=8,16 WM=16,32,64 WN=32,64 TM=8 TN=4,8 SLICE_K=1 SPLIT_K=1,2 \
    STREAM_BLOCKS=0,264 STAGES=2,3,4 GROUP_M=1 MIN_BLOCKS=1,2 LANE_MAP=quads
record 4096x256x1024 BM=32,64 BN=32,64,128 BK=8,16,32 WM=16,32 WN=16,32,64 TM=4,8 TN=4 \
    SLICE_K=1,2,4 SPLIT_K=1,2 STAGES=3,4 GROUP_M=1 LANE_MAP=quads
record 4096 BM=64,128 BN=128,256 BK=8,16 WM=32,64,128 WN=32,64,128 TM=8,16 TN=8 SLICE_K=1 \
    STREAM_BLOCKS=0,264 STAGES=2,3,4 GROUP_M=8 LANE_MAP=rows,quads
