"""Small families written to a folder, for the tests of search spaces."""

from pathlib import Path

SMALL = """
family: mine
summary: tiles that divide one another
dtypes: {a: f32, b: f32, c: f32, accumulate: f32}
architectures: ">=70"
parameters:
  BM: {values: [16, 32, 64, 128], doc: rows of C per block}
  WM: {values: [16, 32, 64], doc: rows of C per warp}
  STAGES: {values: [1, 2, 3], doc: k_tiles in shared memory}
  ORDER: {values: [rows, snake], doc: order over the thread tile}
derive:
  threads: 32 * warps
  warps: BM // WM
  smem_bytes: 4 * STAGES * BM * 32
  blocks: ceil_div(M, BM)
  wide: 1 if lda % 4 == 0 else 0
constraints:
  - {require: BM % WM == 0, because: a block tile is a whole number of warp tiles}
  - {require: smem_bytes <= device.max_smem_per_block_bytes, because: a block has no more}
  - {require: ORDER == 'rows' or warps > 1, because: one warp has nothing to turn round}
launch:
  - kernel: gemm_kernel
    threads: threads
    grid: blocks * ceil_div(N, BM)
    smem_bytes: smem_bytes
workspace_bytes: 4 * M * N if STAGES == 3 else 0
seeds:
  - {BM: 128, WM: 64, STAGES: 2, ORDER: snake}
  - {STAGES: 1, BM: 16, WM: 64, ORDER: rows}
"""

# The same seeds as they may be written in seeds/mine.yaml.
SEEDS = """
family: mine
seeds:
  - gpu: H100
    problems: 512, 1024
    note: few of them
    configs:
      - {BM: 128, WM: 64, STAGES: 2, ORDER: snake}
      - {STAGES: 1, BM: 16, WM: 64, ORDER: rows}
  - configs:
      - {BM: 64, WM: 64, STAGES: 1, ORDER: rows}
"""


def write_family(folder: Path, text: str = SMALL, name: str = "mine") -> Path:
    """NAME.yaml and an empty NAME.cu.jinja in the folder, which is created."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(text)
    (folder / f"{name}.cu.jinja").write_text("// no kernel\n")
    return folder
