"""The Python of README.md that needs a GPU runs as it is written, and gives the product."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from autogemm.store import open_store
from autogemm.targets.cuda import CudaTarget

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_python_for_a_gpu_runs_as_written(
    target: CudaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    (block,) = (one for one in BLOCKS if "tune=True" in one)
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "readme.db"))
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    x, weight, y = (names[name].double() for name in ("x", "weight", "y"))
    torch.testing.assert_close(y, x @ weight.T, rtol=1e-4, atol=1e-2)
    with open_store(create=False) as store:
        assert store is not None, "the search has stored its run"
