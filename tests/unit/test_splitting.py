"""FP32 from tensor cores says how, wherever a kernel is shown, and is measured by its own roof."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench_samples import SPEC as BENCH_SPEC
from bench_samples import timed
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from store_samples import SPEC, entry, finals, ok

from autogemm.catalogue.gpus import find_device, roof_of
from autogemm.cli import main
from autogemm.codegen import render
from autogemm.insight.explain import Missing, Request, Times, Tools, explain
from autogemm.insight.explain.explanation import Timing
from autogemm.insight.explain.intensity import intensity
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import KernelKind
from autogemm.model.results.outcome import Provenance
from autogemm.model.splitting import PARAMETER, Splitting, splitting_of
from autogemm.space import list_families, load_family
from autogemm.space.family import Searched
from autogemm.store import RunState, open_store
from autogemm.verify.cases import CaseResult, Check

H100 = find_device("h100")
PROBLEM = Problem(1024, 1024, 1024)
EMULATED = [load_family(name) for name in ("sgemm_emulated", "sgemm_emulated_wgmma")]

Floats = NDArray[np.float64]


def rounded(numbers: Floats, bits: int) -> Floats:
    mantissa, exponent = np.frexp(numbers)
    return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)


def cut(numbers: Floats, bits: int) -> Floats:
    mantissa, exponent = np.frexp(numbers)
    return np.ldexp(np.trunc(np.ldexp(mantissa, bits)), exponent - bits)


def parts(numbers: Floats, splitting: Splitting) -> list[Floats]:
    """As the templates split: two parts round the upper one, three are cut off."""
    bits = splitting.element.significant_bits
    if splitting.num_parts == 2:
        upper = rounded(numbers, bits)
        return [upper, cut(numbers - upper, bits)]
    first = cut(numbers, bits)
    second = cut(numbers - first, bits)
    return [first, second, cut(numbers - first - second, bits)]


@pytest.mark.parametrize("splitting", Splitting)
def test_what_splitting_loses_is_bounded(splitting: Splitting) -> None:
    generator = np.random.default_rng(1)
    a, b = (generator.uniform(1, 2, 200_000).astype(np.float32).astype(float) for _ in range(2))
    of_a, of_b = parts(a, splitting), parts(b, splitting)
    # The largest products: those of parts that are together least far down.
    pairs = sorted(
        ((i, j) for i in range(splitting.num_parts) for j in range(splitting.num_parts)), key=sum
    )
    kept = pairs[: splitting.num_products]
    lost = np.abs(sum(of_a[i] * of_b[j] for i, j in kept) - a * b) / (a * b)
    if splitting.lost_exponent is None:
        assert lost.max() < 2.0**-50, "what float64 rounds"
    else:
        assert 2.0**-26 < lost.max() < 2.0**splitting.lost_exponent


def test_every_emulated_family_says_how_it_splits() -> None:
    for name in list_families():
        family = load_family(name)
        values = {p.name: p.values for p in family.parameters}.get(PARAMETER, ())
        is_emulated = family.searched is Searched.WITH_EMULATION
        assert bool(values) == is_emulated, name
        assert set(values) <= {one.label for one in Splitting}
        assert all((splitting_of(seed) is not None) == is_emulated for seed in family.seeds)


def test_words_tell_the_splitting_and_its_error() -> None:
    assert splitting_of(EMULATED[1].seeds[0]) is Splitting.F16X3
    words = Splitting.F16X3.words
    assert "f16x3: 2 numbers of F16 for each, 3 products" in words
    assert "loses less than 2^-20 of |A||B|" in words
    assert "error bound of FP32" in words
    assert "loses nothing, and" in Splitting.BF16X9.words


def test_explain_measures_by_the_roof_of_the_products() -> None:
    config = EMULATED[1].seeds[0]
    plain, split = (intensity(one, PROBLEM, H100).levels[0] for one in (_simt(), config))
    tensor_rate = 4096 / 3 / (2 * 128)  # of F16 products, three for each, to FP32 cores
    assert split.ridge_flop_per_byte == pytest.approx(tensor_rate * plain.ridge_flop_per_byte)


def _simt() -> Config:
    return load_family("sgemm_simt").seeds[0]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kernels 1 and 2 are emulated, 3 is not; and a benchmark of the first and the last."""
    path = str(tmp_path_factory.mktemp("splitting") / "a.db")
    with open_store(path) as store:
        for family in (*EMULATED[::-1], load_family("sgemm_simt")):
            config = family.seeds[0]
            source = render(family, config, PROBLEM)
            run = store.begin_run(replace(SPEC, problem=PROBLEM, families=(family.name,)))
            outcome = replace(ok(64, 22.8), config=config, kernel_sha256=source.sha256)
            store.record_trial(run, 0, outcome, source)
            own = replace(
                entry(64, 22.8, 22.8, 22.8, ratio=2.4), config=config, kernel_sha256=source.sha256
            )
            store.record_finals(run, finals(own), {source.sha256: source})
            store.finish_run(run, RunState.FINISHED)
        bench = store.begin_bench(BENCH_SPEC)
        entries = [
            replace(
                timed(f"kernel {number}", PROBLEM, 22.8, 2.4),
                kind=KernelKind.STORED,
                config=config,
            )
            for number, config in ((1, EMULATED[1].seeds[0]), (3, _simt()))
        ]
        store.record_entries(bench, entries, {})
        store.finish_bench(bench)
    return path


def run(database: str, *words: str) -> Result:
    result = CliRunner().invoke(main, [*words, "--db", database])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize(
    ("kernel", "splitting"), [("1", Splitting.F16X3), ("2", Splitting.TF32X3), ("3", None)]
)
def test_a_stored_kernel_tells_how_it_computes(
    database: str, kernel: str, splitting: Splitting | None, tmp_path: Path
) -> None:
    (shown,) = json.loads(run(database, "db", "show", kernel, "--json").stdout)
    assert shown["arithmetic"] == (splitting and splitting.words)
    path = tmp_path / "best.cu"
    said = run(database, "export", "--kernel", kernel, str(path)).output
    header = " ".join(line.strip("/ ") for line in path.read_text().splitlines()[:30])
    as_json = tmp_path / "best.json"
    run(database, "export", "--kernel", kernel, "--format", "json", str(as_json))
    assert json.loads(as_json.read_text())["splitting"] == (splitting and splitting.label)
    if splitting is None:
        assert "tensor cores" not in said + header
    else:
        assert splitting.words in " ".join(said.split())
        assert splitting.words in " ".join(header.split())


def test_a_config_from_before_the_parameter_is_measured_alike() -> None:
    family = EMULATED[1]
    old = {name: value for name, value in family.seeds[0].as_dict().items() if name != PARAMETER}
    times = Times(1, Provenance.MEASURED, 22.8, {})
    shares = []
    for config in (Config.of(family.name, old), family.seeds[0]):
        request = Request(family, config, PROBLEM, H100, times)
        found = explain(request, Tools(Missing("not here"), Missing("not here")))
        assert isinstance(found.timing, Timing)
        shares.append(found.timing.of_peak)
    assert shares[0] == shares[1] < 1


def test_a_benchmark_tells_it_too_and_counts_against_the_right_roof(database: str) -> None:
    shown = run(database, "bench", "--show", "last").stdout
    assert f"kernel 1: {Splitting.F16X3.words}" in " ".join(shown.split())
    assert "kernel 3:" not in shown
    rows = list(
        csv.DictReader(io.StringIO(run(database, "bench", "--show", "last", "--csv").stdout))
    )
    assert [row["splitting"] for row in rows] == ["f16x3", ""]
    roof = roof_of(H100, DType.F32, EMULATED[1].seeds[0])
    assert roof is not None
    attainable = roof.attainable_tflops(PROBLEM.flop_per_byte)
    percent = 100 * PROBLEM.tflops(22.8) / attainable
    assert float(rows[0]["percent_of_roof"]) == pytest.approx(percent, rel=1e-3)
    assert float(rows[1]["percent_of_roof"]) > 100, "no FP32 core is as fast"
    rows = json.loads(run(database, "roofline", "--bench", "last", "--json").stdout)
    assert rows[0]["percent_of_roof"] == pytest.approx(percent, rel=1e-3)
    assert rows[0]["roof_tflops"] == pytest.approx(attainable, rel=1e-3)


def test_explain_tells_it_and_its_share_of_the_peak(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGEMM_GXX", "no-such-compiler")
    shown = run(database, "explain", "1").stdout
    assert Splitting.F16X3.words in " ".join(shown.split())
    roof = roof_of(H100, DType.F32, EMULATED[1].seeds[0])
    assert roof is not None
    share = PROBLEM.tflops(22.8) / roof.peak_tflops
    assert f"{share:.0%} of the GPU's f16x3 peak" in shown


def test_verify_tells_it(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def right(*_: object) -> Iterator[Check]:
        yield lambda case: CaseResult(case, True, "", 0.5, 0.0)

    monkeypatch.setattr("autogemm.cli.kernels.run.verify.checker", right)
    for kernel, name, expected in (
        ("1", "sgemm_emulated_wgmma", [Splitting.F16X3]),
        ("2", "sgemm_emulated", [Splitting.TF32X3]),
        ("3", "sgemm_simt", []),
    ):
        words = ("verify", "--gpu", "h100", "--kernel", kernel, "--family", name)
        said = " ".join(run(database, *words).stdout.split())
        assert [one for one in Splitting if one.words in said] == expected
