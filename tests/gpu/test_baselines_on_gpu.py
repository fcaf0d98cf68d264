"""Baselines of types that cuBLAS does not multiply, or of which it makes no C, on a GPU."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autogemm.cli import main
from autogemm.targets.cuda import CudaTarget

pytestmark = pytest.mark.gpu
BLOCKS = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
OF_GROUPS = BLOCKS.replace("[n /", "[g, n /")
SCALED = "acc * sa[m] * sb[n]; sa: f32; sb: f32"


@pytest.mark.parametrize(
    ("dtype", "more", "name"),
    [
        ("e5m2", (), "conversion to bf16 + cuBLAS"),
        ("e5m2-f16", ("--alpha", "1.5", "--beta", "0.5"), "conversion to f16 + cuBLAS"),
        ("e5m2-f32", (), "conversion to bf16 + cuBLAS"),
        ("e5m2-e5m2", (), "conversion to bf16 + cuBLAS"),
        ("e5m2", ("--groups", "4 zipf=1.1 seed=1"), "conversion to bf16 + cuBLAS"),
        ("e5m2", ("--epilogue", "relu(acc + bias[n])"), "conversion to bf16 + cuBLAS"),
        ("e5m2", ("--epilogue", BLOCKS), "conversion to bf16 + cuBLAS"),
        ("e5m2-e5m2", ("--epilogue", f"relu({BLOCKS})"), "conversion to bf16 + cuBLAS"),
        ("e5m2xe4m3", (), "cuBLASLt proposal"),
        ("e4m3xe5m2-f32", ("--epilogue", BLOCKS), "cuBLASLt proposal"),
        ("e4m3xe5m2", ("--groups", "4 zipf=1.1 seed=1"), "looped"),
        (
            "e4m3",
            ("--epilogue", OF_GROUPS, "--groups", "128,0,300,20"),
            "cuBLASLt proposal 1, looped",
        ),
        # cuBLASLt has calls for scales of blocks where rows are a multiple of 4.
        (
            "e4m3",
            ("--epilogue", OF_GROUPS, "--groups", "4 zipf=1.1 seed=1"),
            "conversion to bf16 +",
        ),
        (
            "e4m3xe5m2",
            ("--epilogue", f"relu({OF_GROUPS})", "--groups", "4 masked=200"),
            "conversion to bf16 +",
        ),
        ("e5m2", ("--epilogue", OF_GROUPS, "--groups", "200,0,77"), "conversion to bf16 + cuBLAS"),
        ("e4m3-e4m3", ("--beta", "0.5"), "pointwise kernel"),
        ("bf16-e4m3", (), "pointwise kernel"),
        ("i8-bf16", ("--alpha", "0.001"), "pointwise kernel"),
        ("i8-bf16", ("--epilogue", SCALED), "pointwise kernel"),
        ("i8-f16", ("--epilogue", SCALED, "--groups", "4 zipf=1.1 seed=1"), "pointwise kernel"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_search_has_one(
    target: CudaTarget, tmp_path: Path, dtype: str, more: tuple[str, ...], name: str
) -> None:
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    command = ["tune", "--size", "512x384x640", "--layout", "nt", "--dtype", dtype, *more]
    command += ["--family", "gemm_wgmma", "--trials", "2", "--rounds", "6", "--finalists", "1"]
    command += ["--no-certify", "--no-warm-start", "--json", "--db", str(tmp_path / "a.db")]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    found: Any = json.loads(done.stdout)
    assert name in found["finals"]["baseline"]["name"]
