"""Small cache files as Kernel Tuner writes them: CLBlast's parameters, times that can be told."""

import itertools
import json
from pathlib import Path
from typing import Any

# SA is last, so that the same tile comes with and without local memory.
VALUES: dict[str, list[Any]] = {
    "MWG": [16, 32, 64],
    "NWG": [16, 32],
    "KWG": [32],
    "MDIMC": [8, 16],
    "NDIMC": [8],
    "MDIMA": [8, 16],
    "NDIMB": [8],
    "VWM": [1, 2],
    "VWN": [1],
    "SA": [0, 1],
    "SB": [0],
    "PRECISION": [32],
}
BEST = {"MWG": 64, "NWG": 32, "MDIMC": 8, "NDIMC": 8, "MDIMA": 8, "VWM": 2, "SA": 1}
COMPILE_MS, VERIFY_MS, BENCHMARK_MS = 100.0, 20.0, 30.0


def time_ms(row: dict[str, Any]) -> float:
    """Least, 1 ms, for BEST."""
    return 1.0 + sum(0.1 * (row[name] != value) for name, value in BEST.items())


def entry(row: dict[str, Any]) -> dict[str, Any]:
    """As Kernel Tuner keeps it; 16 x 16 tiles failed."""
    if row["MWG"] == row["NWG"] == 16:
        return row | {"time": "RuntimeFailedConfig", "times": []}
    spent = {
        "compile_time": COMPILE_MS,
        "verification_time": VERIFY_MS,
        "benchmark_time": BENCHMARK_MS,
        "framework_time": 5.0,
    }
    return row | {"time": time_ms(row), "times": [time_ms(row)] * 7, "GFLOP/s": 1.0} | spent


def content(**changes: Any) -> dict[str, Any]:
    """The file; ``changes`` replace its fields."""
    rows = [dict(zip(VALUES, row, strict=True)) for row in itertools.product(*VALUES.values())]
    # Only whole numbers of vectors: a list is not the product of its values.
    rows = [row for row in rows if row["MWG"] // row["MDIMC"] >= row["VWM"]]
    return {
        "device_name": "Foreign GPU",
        "kernel_name": "Xgemm",
        "problem_size": [4096, 4096],
        "tune_params_keys": list(VALUES),
        "tune_params": VALUES,
        "cache": {",".join(map(str, row.values())): entry(row) for row in rows},
    } | changes


def cache_text(is_closed: bool = True, **changes: Any) -> str:
    """One entry a line, as Kernel Tuner appends them; left open as while it runs if not closed."""
    whole = content(**changes)
    head = json.dumps(whole | {"cache": {}}, indent="")[: -len("}\n}")]
    lines = [f"\n{json.dumps({key: row})[1:-1]}," for key, row in whole["cache"].items()]
    text = head + "".join(lines)
    return text[:-1] + "}\n}" if is_closed else text


def write_cache(path: Path, is_closed: bool = True, **changes: Any) -> Path:
    path.write_text(cache_text(is_closed, **changes))
    return path
