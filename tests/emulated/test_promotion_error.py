"""benchmarks/promotion_error.py on a simulated GPU (cuda_on_cpu/), with kernels in plain C++."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "benchmarks"

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

PAGE = HERE.parents[1] / "docs" / "kernels" / "gemm_wgmma.md"
BEGIN, END = "<!-- promotion errors -->", "<!-- end of promotion errors -->"
# In a process of its own: no other test may see this CuPy.
RUN = """
from concurrent.futures import Future

import promotion_error
import test_tensor_dtypes_on_cpu as plain


def candidate(source):
    problem = promotion_error.problem_of(64, 64, 64)
    return plain.candidate(problem, **({BUG} if "PROMOTE=256" in str(source.config) else {}))


class Compiler:
    version = "g++ 12"

    def __init__(self, folder):
        pass

    def submit(self, source, arch):
        done = Future()
        done.set_result(candidate(source).compiled)
        return done

    def close(self):
        pass


promotion_error.Compiler = Compiler
promotion_error.launch_plan = lambda *_: plain.candidate(promotion_error.problem_of(1, 1, 1)).plan
promotion_error.SIDE, promotion_error.ROUNDS = 32, 3
promotion_error.main()
"""


def ran(
    folder: Path, *arguments: str, bug: str = "{}", code: int = 0
) -> tuple[dict[str, Any], str]:
    """The results as JSON, and what was printed."""
    built = Path(os.environ["AUTOGEMM_CACHE"]).parent / "cuda_on_cpu"
    built.mkdir(exist_ok=True)
    path = [HERE / "cuda_on_cpu", HERE / "nvml_on_cpu", HERE, BENCHMARKS, HERE.parents[1]]
    environment = os.environ | {
        "CUDA_ON_CPU_FOLDER": str(built),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
    }
    text = RUN.replace("{BUG}", bug)
    command = [sys.executable, "-c", text, "--out", str(folder), "--commit", "abc", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    written = list(folder.glob("promotion_error_*.json"))
    return json.loads(written[0].read_text()) if written else {}, done.stdout + done.stderr


def test_errors_and_times_are_of_all_kernels(tmp_path: Path) -> None:
    arguments = ("--depths", "128,4096", "--timed", "64x64x128")
    off = '{"ACCUMULATE": "as_bf16"}'
    found, shown = ran(tmp_path, *arguments, bug=off)
    assert (tmp_path / "promotion_error_gpu.txt").read_text().strip() == shown.strip()
    rows = {row["kernel"]: row for row in found["rows"]}
    assert list(rows) == [
        *(f"gemm_wgmma PROMOTE={interval}" for interval in (0, 128, 256, 512)),
        *("cuBLASLt", "cuBLASLt, fast accumulation", "gemm_skinny, 8 rows"),
    ]
    right = rows["gemm_wgmma PROMOTE=128"]
    # Products are multiples of 2^-18, of which FP32 adds up so few exactly.
    assert right["errors"]["128"]["error"] == right["errors"]["4096"]["error"] == 0
    assert right["errors"]["4096"]["complaint"] == ""
    assert len(right["timed"]["samples_us"]) == 3
    assert right["timed"]["tflops"] == pytest.approx(
        2 * 64 * 64 * 128 / right["timed"]["time_us"] / 1e6
    )
    assert right["timed"]["is"].startswith("BM=")
    assert rows["gemm_skinny, 8 rows"]["timed"] is None
    # The simulated cuBLASLt's first proposal is wrong; its third one is the fastest right one.
    assert rows["cuBLASLt"]["timed"]["is"] == "proposal 3"
    assert rows["cuBLASLt"]["errors"]["4096"]["is"] == "proposal 2"
    # What is wrong is told, and stands in the file.
    wrong = rows["gemm_wgmma PROMOTE=256"]
    assert "wrong on integer inputs" in wrong["errors"]["4096"]["complaint"]
    assert "gemm_wgmma PROMOTE=256: 4096: " in shown.partition("wrong: ")[2]
    assert found["command"].startswith("benchmarks/promotion_error.py --out OUT --commit abc")
    check_page(found, shown, tmp_path)


def check_page(found: dict[str, Any], shown: str, folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(f"before\n{BEGIN}\nnot measured yet\n{END}\nafter\n")
    (written,) = folder.glob("promotion_error_*.json")
    ran(folder, "--page", str(written), str(page))
    lines = page.read_text().splitlines()
    assert (lines[0], lines[1], lines[-2], lines[-1]) == ("before", BEGIN, END, "after")
    assert len(lines) == 4 + 4 + len(found["rows"])
    # Each line has the numbers of the text that it links to.
    for line, row in zip(lines[5:-3], found["rows"], strict=True):
        label, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        assert row["kernel"] in label and "promotion_error_gpu.txt" in label
        assert all(cell in shown for cell in cells)
    # The committed page has a place for it.
    assert f"\n{BEGIN}\n" in PAGE.read_text() and f"\n{END}\n" in PAGE.read_text()


@pytest.mark.parametrize("arguments", [("--timed", "64x64"), ("--depths", "128,x")], ids=str)
def test_what_is_no_size_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    _, shown = ran(tmp_path, *arguments, code=2)
    assert "Invalid value" in shown and "Traceback" not in shown
