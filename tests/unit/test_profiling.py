"""Reading real pages of Nsight Compute, and the conclusions from them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from bench_samples import PROFILE
from click.testing import CliRunner, Result
from fake_gpus import attach
from store_samples import SPEC

from autogemm.catalogue.ladder import find_rung
from autogemm.cli import main
from autogemm.codegen import render
from autogemm.insight.profiling import Finding, findings, parse_page
from autogemm.insight.profiling import counters as names
from autogemm.insight.profiling.counters import KEPT, stalls
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.model.results.stored import Profile
from autogemm.space import load_family
from autogemm.store import open_store
from autogemm.support.errors import ProfileError

PAGES = Path(__file__).parents[1] / "pages"
TILED = ("--from", str(PAGES / "tiled_1024.csv"), "--gpu", "h100")
RUNGS = sorted(path.name.removesuffix("_1024.csv") for path in PAGES.glob("*_1024.csv"))
ON_TENSOR_CORES = ("gemm_wgmma_4096", "gemm_mma_2048", "sgemm_emulated_wgmma_2048")


def named_page(name: str) -> str:
    return (PAGES / f"{name}.csv").read_text()


def page(rung: str) -> str:
    return named_page(f"{rung}_1024")


def profile_of(rung: str, **changes: float) -> Profile:
    found = find_rung(rung)
    family = load_family(found.family)
    config = Config.of(family.name, family.seeds[0].as_dict() | dict(found.values))
    counters = parse_page(page(rung)) | changes
    return replace(PROFILE, kernel=rung, config=config, counters=tuple(counters.items()))


def said(rung: str, topic: str, **changes: float) -> list[Finding]:
    return [one for one in findings(profile_of(rung, **changes)) if one.topic == topic]


@pytest.mark.parametrize("name", ON_TENSOR_CORES)
def test_every_counter_that_is_looked_for_is_in_a_real_page(name: str) -> None:
    assert parse_page(named_page(name)).keys() >= KEPT


@pytest.mark.parametrize("name", [*(f"{rung}_1024" for rung in RUNGS), *ON_TENSOR_CORES])
def test_stall_reasons_of_a_real_page_are_shares_of_a_warps_waiting(name: str) -> None:
    shares = stalls(parse_page(named_page(name)))
    # With the cycle of its own issue they are all there is between two instructions of a warp.
    assert 0.5 < sum(shares.values()) < 1.0
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_numbers_are_those_of_the_page() -> None:
    counters = parse_page(page("naive"))
    assert counters[names.TIME] == 412_864  # nanoseconds
    assert counters[names.LOAD_SECTORS] / counters[names.GLOBAL_LOADS] == pytest.approx(2.5)
    assert counters["launch__grid_size"] == 1024


def test_of_several_kernels_the_longest_counts() -> None:
    lines = page("naive").splitlines()
    shorter = lines[2].replace("412,864", "5")
    assert parse_page("\n".join([*lines, shorter]))[names.TIME] == 412_864
    # The third of three: what measures and splits A and B comes before it.
    assert parse_page(named_page("sgemm_emulated_wgmma_2048"))[names.TIME] == 102_016


@pytest.mark.parametrize(
    "text", ["", "==ERROR== nothing", '"ID","x"\n"",""\n', page("naive").split("\n")[0]]
)
def test_what_is_no_page_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="Nsight Compute"):
        parse_page(text)


def test_a_number_that_is_missing_is_left_out() -> None:
    text = page("naive").replace('"412,864"', '"412864"').replace('"32"', '"n/a"')
    assert names.REGISTERS not in parse_page(text)


def test_lanes_in_a_column_are_uncoalesced() -> None:
    loads, stores = said("naive_uncoalesced", "coalescing")
    assert "16.5 sectors per request" in loads.figure
    assert "31.9 sectors per request" in stores.figure
    assert (loads.parameters, loads.cause != "") == (("WALK", "TN"), True)
    good, _ = said("naive", "coalescing")
    assert (good.cause, good.parameters) == ("", ())


def test_vectors_take_as_many_sectors_as_they_have_bytes_for() -> None:
    # 16 sectors are four floats of 32 lanes.
    loads, _ = said("vectorized", "coalescing")
    assert "16.0 sectors per request, 16 if" in loads.figure
    assert loads.cause == ""


@pytest.mark.parametrize(
    ("rung", "reason", "parameters"),
    [
        ("naive_uncoalesced", "lg_throttle: 94 %", {"TN", "WALK"}),
        ("tiled", "mio_throttle: 55 %", {"TN"}),
        ("pipelined", "not_selected: 51 %", set()),
    ],
)
def test_the_first_stall_reason(rung: str, reason: str, parameters: set[str]) -> None:
    first = said(rung, "stall")[0]
    assert first.figure.startswith(reason)
    assert set(first.parameters) == parameters


def test_bank_conflicts_count_among_all_accesses() -> None:
    loads, stores = said("register_blocked", "bank conflicts")
    assert loads.figure == "shared loads: 4.0 wavefronts each, 25 % are conflicts"
    assert "PAD" in loads.parameters
    assert stores.cause == ""
    # Twelve per cent of the few stores of this kernel.
    assert [one.cause for one in said("tiled", "bank conflicts")] == ["", ""]
    assert said("naive", "bank conflicts") == []


def test_compute_says_what_is_executed_instead_of_multiply_adds() -> None:
    (tiled,) = said("tiled", "compute")
    assert "load and store instructions (78 %" in tiled.says
    (blocked,) = said("register_blocked", "compute")
    assert "integer instructions (44 %" in blocked.says
    (pipelined,) = said("pipelined", "compute")
    assert "busy" in pipelined.says


@pytest.mark.parametrize(
    ("name", "dtype", "compute", "says", "stall"),
    [
        (
            "gemm_wgmma_4096",
            DType.BF16,
            "tensor pipe 92 % of all cycles, 91 % of the BF16 roof in these cycles",
            "bound by the tensor pipe, as intended",
            "barrier: 52 % of 16.2 cycles per instruction",
        ),
        (
            "gemm_mma_2048",
            DType.BF16,
            "tensor pipe 58 % of all cycles, 38 % of the BF16 roof in these cycles",
            "the tensor pipe waits: see the stall reasons",
            "wait: 28 % of 6.1 cycles per instruction",
        ),
        (
            "sgemm_emulated_wgmma_2048",
            DType.F32,
            "tensor pipe 69 % of all cycles, 67 % of the f16x3 roof in these cycles",
            "the tensor pipe waits: see the stall reasons",
            "long_scoreboard: 26 % of 6.0 cycles per instruction",
        ),
    ],
)
def test_what_real_pages_of_tensor_cores_say(
    name: str, dtype: DType, compute: str, says: str, stall: str
) -> None:
    family, size = name.rsplit("_", 1)
    profile = replace(
        PROFILE,
        problem=Problem.of_size(size, dtype=dtype),
        config=load_family(family).seeds[0],
        counters=tuple(parse_page(named_page(name)).items()),
    )
    found = findings(profile)
    (judged,) = (one for one in found if one.topic == "compute")
    assert (judged.figure, judged.says) == (compute, says)
    assert next(one.figure for one in found if one.topic == "stall") == stall
    (occupancy,) = (one for one in found if one.topic == "occupancy")
    assert occupancy.cause == "", "few warps are no fault there"


# 2048^3 in BF16 at the full rate of 132 SMs: 4096 operations of each in a clock.
FULL_RATE_CYCLES = 2 * 2048**3 / (132 * 4096)
BUSY = {names.TENSOR: 97.0, names.CYCLES: FULL_RATE_CYCLES / 0.95, names.CLOCK_HZ: 1.4e9}


def on_tensor_cores(
    changes: Mapping[str, float], dtype: DType = DType.BF16, config: Config | None = None
) -> Profile:
    """A profile of 2048^3; what it does not change are counters of a kernel on CUDA cores."""
    profile = profile_of("block_tiled_2d", **changes)
    problem = Problem(2048, 2048, 2048, dtype=dtype)
    return replace(profile, problem=problem, config=config or load_family("gemm_wgmma").seeds[0])


def test_where_tensor_cores_multiply_their_pipe_is_judged_in_cycles() -> None:
    busy = {one.topic: one for one in findings(on_tensor_cores(BUSY))}
    compute, clock = busy["compute"], busy["clock"]
    assert compute.figure == "tensor pipe 97 % of all cycles, 95 % of the BF16 roof in these cycles"
    assert compute.says == "bound by the tensor pipe, as intended"
    # Whatever the FMA pipe and the issue slots do.
    same = findings(on_tensor_cores(BUSY | {names.FMA: 1.0, names.ISSUE: 1.0, names.LSU: 99.0}))
    assert compute in same
    # And at any clock.
    assert clock.figure == "1.40 of 1.98 GHz under the profiler"
    assert compute in findings(on_tensor_cores(BUSY | {names.CLOCK_HZ: 1.98e9}))


def test_the_roof_is_that_of_what_is_multiplied() -> None:
    (tf32,) = _computes(on_tensor_cores(BUSY, DType.TF32))
    assert "190 % of the TF32 roof" in tf32.figure, "half the rate of BF16"
    split = load_family("sgemm_emulated_wgmma").seeds[0]
    (emulated,) = _computes(on_tensor_cores(BUSY, DType.F32, split))
    assert emulated.figure.endswith(" 97 % of all cycles, 285 % of the f16x3 roof in these cycles")
    by_mma = load_family("sgemm_emulated").seeds[1]
    (emulated,) = _computes(on_tensor_cores(BUSY, DType.F32, by_mma))
    assert emulated.figure.endswith(", 570 % of the bf16x6 roof in these cycles")


def test_a_tensor_pipe_that_is_not_busy_waits_for_something() -> None:
    idle = {**BUSY, names.TENSOR: 55.0, names.DRAM: 10.0, names.L1: 20.0, names.L2: 10.0}
    (stalled,) = _computes(on_tensor_cores(idle))
    assert stalled.says == "the tensor pipe waits: see the stall reasons"
    (starved,) = _computes(on_tensor_cores(idle | {names.DRAM: 91.0}))
    assert starved.says == "bound by device memory: the tensor pipe waits for it"
    half = {**BUSY, names.CYCLES: 2 * FULL_RATE_CYCLES}
    (wasted,) = _computes(on_tensor_cores(half))
    assert "50 % of the BF16 roof" in wasted.figure
    assert "only a part" in wasted.says
    assert wasted.parameters == ("BM", "BN")


def test_without_a_counter_of_the_tensor_pipe_nothing_is_said_of_it() -> None:
    assert _computes(on_tensor_cores({})) == []


def test_few_warps_and_wide_copies_are_no_faults_of_tensor_cores() -> None:
    few = {names.WAVES: 4.0, names.ISSUE: 12.0}
    wide = {names.LOAD_SECTORS: 16.0, names.GLOBAL_LOADS: 1.0}
    found = findings(on_tensor_cores(BUSY | few | wide))
    (occupancy,) = (one for one in found if one.topic == "occupancy")
    assert occupancy.cause == ""
    (loads,) = (one for one in found if one.figure.startswith("global loads"))
    assert loads.cause == "", "16 bytes a lane are 16 sectors"


def _computes(profile: Profile) -> list[Finding]:
    return [one for one in findings(profile) if one.topic == "compute"]


def test_occupancy_names_the_limit_and_an_empty_gpu() -> None:
    (tiled,) = said("tiled", "occupancy")
    assert tiled.says == "registers and threads limit it to 2 blocks per SM"
    assert tiled.cause == ""
    (pipelined,) = said("pipelined", "occupancy")
    assert "0.24 of the GPU" in pipelined.says
    assert "SPLIT_K" in pipelined.parameters
    (alone,) = said("block_tiled_2d", "occupancy", **{names.WAVES: 4.0})
    assert "too few warps to hide latency" in alone.says
    assert "TM" in alone.parameters


def test_memory_names_the_level_that_is_at_its_limit() -> None:
    (naive,) = said("naive", "memory")
    assert "L1 and shared memory is at its limit" in naive.says
    (pipelined,) = said("pipelined", "memory")
    assert pipelined.says == "no level is near its limit"
    (dram,) = said("pipelined", "memory", **{names.DRAM: 93.0})
    assert "device memory is at its limit" in dram.says
    assert dram.parameters == ("BM", "BN", "GROUP_M")


def test_without_counters_nothing_is_said() -> None:
    assert findings(replace(PROFILE, counters=())) == ()


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    return Run(tmp_path)


class Run:
    def __init__(self, folder: Path) -> None:
        self.db = str(folder / "a.db")

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["profile", *arguments, "--db", self.db])


def test_a_page_from_elsewhere_is_said_and_stored(run: Run) -> None:
    result = run("tiled", "--size", "1024", *TILED)
    assert result.exit_code == 0, result.output
    assert "stall: mio_throttle: 55 % of 36.9 cycles per instruction\n" in result.stdout
    assert "  turn: TN" in result.stdout
    with open_store(run.db) as store:
        (stored,) = store.profiles()
    assert (stored.kernel, stored.problem.m) == ("tiled", 1024)
    assert dict(stored.counters) == parse_page(page("tiled"))
    rows = json.loads(run("tiled", "--size", "1024", *TILED, "--json", "--no-store").stdout)
    assert [row["topic"] for row in rows][:2] == ["occupancy", "compute"]
    with open_store(run.db) as store:
        assert len(store.profiles()) == 1


def test_a_stored_kernel_of_tensor_cores_is_profiled_with_its_dtype(run: Run) -> None:
    problem = Problem(4096, 4096, 4096, dtype=DType.BF16)
    family = load_family("gemm_wgmma")
    source = render(family, family.seeds[0], problem)
    with open_store(run.db) as store:
        spec = replace(SPEC, problem=problem, families=("gemm_wgmma",))
        outcome = Outcome(family.seeds[0], Status.OK, kernel_sha256=source.sha256)
        store.record_trial(store.begin_run(spec), 0, outcome, source)
    kernel = (f"kernel:{source.sha256[:16]}", "--size", "4096", "--json", "--gpu", "h100")
    kernel += ("--from", str(PAGES / "gemm_wgmma_4096.csv"))
    result = run(*kernel, "--dtype", "bf16")
    assert result.exit_code == 0, result.output
    rows = {row["topic"]: row for row in json.loads(result.stdout)}
    assert rows["compute"]["figure"].startswith("tensor pipe 92 % of all cycles, 91 % of the BF16")
    assert "f32" in run(*kernel).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tiled",), "a profile needs a GPU"),
        (("tiled", "--gpu", "h100"), "--gpu needs --from"),
        (("cublas_f32", *TILED), "not a kernel of autogemm"),
        (("rungs", *TILED), "not a kernel of autogemm"),
        (("[red]x", *TILED), "no kernel '[red]x'"),
        (("tiled", "--from", "absent.csv"), "cannot read absent.csv"),
        (("tiled", "--from", str(PAGES / "README.md"), "--gpu", "h100"), "not a raw page"),
        (("winner", *TILED), "autogemm tune"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    run: Run, arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(monkeypatch)
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
