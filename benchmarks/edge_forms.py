"""One tile written in the ways that edges and odd rows allow, timed beside each other and cuBLAS.

    python benchmarks/edge_forms.py [--device h100 --dry-run]

At sizes that no tile divides: checked loads (guarded), tiles moved into C (inward), operands packed
into aligned rows by a launch before. One table row a size and tile; times are medians of
interleaved rounds, ratios above 1 are faster than cuBLAS.
"""

import argparse
from collections.abc import Iterator
from contextlib import closing

from autogemm.catalogue.gpus import find_device
from autogemm.cli.table import print_table
from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import FinalsEntry
from autogemm.space import default_families, nearest_legal
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget
from autogemm.tuning.task.build import Builder, Building

SIZES = (
    *("1111x777x555", "1023", "2047x2047x511", "333x555x777", "201x203x205", "501x1001x2001"),
    *("4095x255x1023", "900", "1000", "700x300x1500", "1500x700x300", "2500", "200"),
)
# Tiles of winners at sizes from 200 to 4096 on an H100.
TILES = (
    "BM=32 BN=64 BK=16 WM=16 WN=64 TM=8 TN=4 SLICE_K=2 STAGES=3 MIN_BLOCKS=1 LANE_MAP=quads",
    "BM=32 BN=128 BK=8 WM=16 WN=64 TM=8 TN=4 SLICE_K=1 STAGES=5 MIN_BLOCKS=4 LANE_MAP=quads",
    "BM=64 BN=64 BK=16 WM=32 WN=64 TM=8 TN=8 SLICE_K=2 STAGES=2 MIN_BLOCKS=1 LANE_MAP=quads",
    "BM=64 BN=128 BK=16 WM=32 WN=64 TM=8 TN=8 SLICE_K=1 STAGES=4 MIN_BLOCKS=3 LANE_MAP=rows",
    "BM=128 BN=128 BK=8 WM=32 WN=128 TM=16 TN=8 SLICE_K=1 STAGES=2 MIN_BLOCKS=1 LANE_MAP=rows",
)
COMMON: dict[str, int | str] = {
    **{"SPLIT_K": 1, "STREAM_BLOCKS": 0, "PAD_A": 4, "PAD_B": 0, "VEC_LOAD": 4, "VEC_STORE": 4},
    **{"REG_STAGES": 2, "HANDOVER": 5, "GROUP_M": 1, "FMA_ORDER": "snake"},
}
FORMS: dict[str, dict[str, int | str]] = {
    "guarded": {"EDGES": "guarded", "PACK": 0},
    "inward": {"EDGES": "inward", "PACK": 0},
    "packed": {"EDGES": "guarded", "PACK": 1},
}
FAMILY = next(family for family in default_families() if family.name == "sgemm_simt")
ROUNDS = 15


def configs(problem: Problem, device: Device) -> Iterator[tuple[str, str, Config]]:
    """Tile, form and legal config; a tile that leaves a form where it must is left out of it."""
    for tile in TILES:
        values = dict(pair.split("=") for pair in tile.split())
        own: dict[str, int | str] = {
            name: int(text) if text.isdigit() else text for name, text in values.items()
        }
        for form, forced in FORMS.items():
            wished = Config.of(FAMILY.name, {**COMMON, **own, **forced})
            legal = nearest_legal(FAMILY, wished, problem, device)
            if legal is not None and all(legal[name] == value for name, value in forced.items()):
                yield f"{own['BM']}x{own['BN']}x{own['BK']}", form, legal


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dry-run", action="store_true", help="Only say what would be timed.")
    if parser.parse_args().dry_run:
        for size in SIZES:
            found = list(configs(Problem(*Problem.parse_size(size)), find_device("h100")))
            print(size, *(f"{tile}:{form}" for tile, form, _ in found))
        return
    rows: list[dict[str, object]] = []
    with closing(CudaTarget()) as target, closing(Compiler()) as compiler:
        begun = [(size, *_begun(size, target.device, compiler)) for size in SIZES]
        for size, problem, buildings in begun:
            target.prepare(problem, MeasureOptions())
            candidates = {key: building.candidate() for key, building in buildings.items()}
            rows += _timed(size, candidates, target)
    print(f"{target.device.name}, {ROUNDS} rounds; x cuBLAS by the median of paired ratios")
    print_table(rows, ("size", "tile", *FORMS))


Key = tuple[str, str]


def _begun(size: str, device: Device, compiler: Compiler) -> tuple[Problem, dict[Key, Building]]:
    """All compile at once; the GPU waits for nothing but the first."""
    problem = Problem(*Problem.parse_size(size))
    builder = Builder((FAMILY,), problem, device, compiler)
    found = configs(problem, device)
    return problem, {(tile, form): builder.start(builder.render(one)) for tile, form, one in found}


def _timed(
    size: str, candidates: dict[Key, Candidate], target: CudaTarget
) -> Iterator[dict[str, object]]:
    distinct = {one.source.sha256: one for one in candidates.values()}
    finals = target.finals(list(distinct.values()), ROUNDS, seed=0)
    entries: dict[str, FinalsEntry] = {one.kernel_sha256: one for one in finals.entries}
    for tile in dict.fromkeys(tile for tile, _ in candidates):
        ratios = {
            form: entries[one.source.sha256].ratio
            for (other, form), one in candidates.items()
            if other == tile and one.source.sha256 in entries
        }
        yield {"size": size, "tile": tile, **ratios}


if __name__ == "__main__":
    main()
