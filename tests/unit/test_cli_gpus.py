import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from fake_gpus import attach

from autogemm.catalogue.gpus import find_device, known_devices
from autogemm.cli import main
from autogemm.cli.kernels.run.gpus import ceiling_rows, latency_rows
from autogemm.model.hardware.device import Ceilings
from autogemm.targets import recorded


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    attach(monkeypatch, why="no NVIDIA driver")
    monkeypatch.setattr(recorded, "list_recordings", list)


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> None:
    device = replace(find_device("h100"), name="[red]GPU[/red]", num_sms=131)
    attach(monkeypatch, device)


def test_without_a_gpu_says_why_and_lists_the_catalogue() -> None:
    result = CliRunner().invoke(main, ["gpus", "--wide"])
    assert result.exit_code == 0
    assert result.stderr == "No attached GPU: no NVIDIA driver\n"
    assert "no NVIDIA driver" not in result.stdout
    lines = result.stdout.splitlines()
    for short_name, device in known_devices().items():
        assert any(line.startswith(short_name) and device.name in line for line in lines)
    (h100,) = (line.split() for line in lines if line.startswith("h100 "))
    assert h100[-9:] == ["sm_90", "132", "80", "3352", "66.91", "19.96", "1071", "50", "227"]


@pytest.mark.usefixtures("attached")
def test_an_attached_gpu_comes_first_and_its_name_is_no_markup() -> None:
    result = CliRunner().invoke(main, ["gpus"])
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.index("[red]GPU[/red]") < result.stdout.index("Known GPUs")


@pytest.mark.usefixtures("attached")
def test_json_is_one_list_with_the_kind_of_each() -> None:
    result = CliRunner().invoke(main, ["gpus", "--json"])
    rows = json.loads(result.stdout)
    assert [row["kind"] for row in rows] == ["attached"] + ["known"] * len(known_devices())
    assert (rows[0]["name"], rows[0]["num_sms"]) == ("[red]GPU[/red]", 131)
    # Full precision, where the table rounds.
    assert rows[0]["peak_f32_tflops"] == pytest.approx(131 * 128 * 2 * 1980e-6, rel=1e-12)


def test_csv_holds_the_same_columns() -> None:
    result = CliRunner().invoke(main, ["gpus", "--csv"])
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == len(known_devices())
    assert (rows[0]["kind"], rows[0]["short_name"], rows[0]["arch"]) == ("known", "t4", "sm_75")


def test_json_and_csv_exclude_each_other() -> None:
    assert CliRunner().invoke(main, ["gpus", "--json", "--csv"]).exit_code == 2


def test_recordings_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = SimpleNamespace(
        path=Path("db/recordings/x.json.gz"),
        device_name="NVIDIA H100 80GB HBM3",
        problem_label="1024 nn f32",
        num_configs=3210,
        date="2026-11-20",
    )
    monkeypatch.setattr(recorded, "list_recordings", lambda: [recording])
    output = CliRunner().invoke(main, ["gpus"]).stdout
    (line,) = (line for line in output.splitlines() if "x.json.gz" in line)
    assert all(text in line for text in ("H100 ", "1024 nn f32", "3210"))


def test_one_gpu_with_its_facts_peaks_ridges_and_source() -> None:
    result = CliRunner().invoke(main, ["gpus", "Tesla T4"])
    facts = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert facts["bandwidth_gb_s"] == ["320.1", "320"]
    assert facts["peak_f32_tflops"] == ["8.141", "8.1"]
    assert facts["peak_f16_tflops"] == ["65.13", "65"]
    assert facts["ridge_f32_flop_per_byte"] == ["25.43", "-"]
    # Turing's tensor cores know neither.
    assert "peak_tf32_tflops" not in facts
    assert facts["source"][:3] == ["NVIDIA", "T4", "datasheet;"]


def test_a_gpu_that_is_unknown() -> None:
    result = CliRunner().invoke(main, ["gpus", "[red]x"])
    assert result.exit_code == 2
    assert "no GPU named '[red]x'" in result.stderr


def test_measuring_without_a_gpu_is_one_line() -> None:
    result = CliRunner().invoke(main, ["gpus", "--measure"])
    assert result.exit_code == 1
    assert result.stderr == "Error: measuring needs a GPU: no NVIDIA driver\n"
    assert CliRunner().invoke(main, ["gpus", "h100", "--measure"]).exit_code == 2


def test_measured_ceilings_stand_beside_the_theory() -> None:
    h100 = find_device("h100")
    measured = Ceilings(63.0, 3016.8, 1980, datetime(2026, 11, 21, tzinfo=UTC))
    fma, copy, ridge = ceiling_rows(h100, measured)
    assert (fma["measured"], fma["percent"]) == (63.0, pytest.approx(94.16, abs=0.01))
    assert (copy["theory"], copy["percent"]) == (
        pytest.approx(3352.3, abs=0.1),
        pytest.approx(90, abs=0.01),
    )
    assert ridge["measured"] == pytest.approx(20.883, abs=0.001)
    both = replace(measured, l2_gb_s=5500.0, smem_gb_s=30000.0)
    _, _, l2, smem, _ = ceiling_rows(h100, both)
    assert (l2["measured"], l2["theory"], l2["percent"]) == (5500.0, None, None)
    # 132 SMs of 128 bytes a clock, at 1980 MHz.
    assert smem["theory"] == pytest.approx(33454.1, abs=0.1)
    assert smem["percent"] == pytest.approx(89.68, abs=0.01)


def test_latencies_stand_in_cycles_and_nanoseconds() -> None:
    measured = Ceilings(63.0, 3016.8, 1980, datetime(2026, 11, 21, tzinfo=UTC))
    assert latency_rows(measured) == []
    levels = replace(measured, l1_latency_cycles=39.6, memory_latency_cycles=792.0)
    l1, memory = latency_rows(levels)
    assert l1 == {"load from": "L1", "cycles": 39.6, "ns": pytest.approx(20.0)}
    assert memory == {"load from": "device memory", "cycles": 792.0, "ns": pytest.approx(400.0)}
    (unknown, _) = latency_rows(replace(levels, sm_clock_mhz=None))
    assert unknown["ns"] is None
