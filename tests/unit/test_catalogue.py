"""The catalogue of winners: what ships holds for today's families, and what reads it."""

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import store_samples
from click.testing import CliRunner
from fake_target import FakeCompiler, FakeTarget, tiny_family
from runtime_fakes import FakeDriver
from sized_target import SizedTarget

from autogemm.catalogue.gpus import find_device
from autogemm.catalogue.winners import TimedKernel, Winner, read_winners, write_winners
from autogemm.cli import main
from autogemm.dispatch import Chooser
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Environment, Finals, FinalsEntry
from autogemm.model.results.stored import TimedText
from autogemm.runtime.plans import Gpu
from autogemm.space import default_families, load_family
from autogemm.store import BestQuery, DecidedRow, open_store, shipped_rows, shipped_winners
from autogemm.support.resources import data_folder
from autogemm.tuning import SearchStarted, TuneRequest, tune
from autogemm.tuning.loop.warm import warm_starts

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import catalogue

H100, A100 = find_device("h100"), find_device("a100")
FAMILIES = default_families()
NAMES = [family.name for family in FAMILIES]
FIRST, SECOND, THIRD = load_family("sgemm_simt").seeds[:3]
EMULATED = load_family("sgemm_emulated_wgmma").seeds[0]
SHIPPED = data_folder("db/catalogue") / "winners.jsonl.gz"
REMAKE = "python benchmarks/catalogue.py"
KNOWN = Problem(512, 512, 512)


def winner(
    problem: Problem = KNOWN, config: Config = FIRST, *, ratio: float = 1.5, gpu: str = H100.name
) -> Winner:
    return Winner(
        gpu=gpu,
        problem=problem,
        kernels=(TimedKernel(config, 10.0 / ratio, ratio, ratio, ratio),),
        kernel_sha256="",
        text=TimedText.UNKNOWN,
        baseline="cuBLAS",
        baseline_us=10.0,
        driver="580.1",
        compiler="nvrtc 13.0",
        cublas="13.1",
        date="2026-11-20",
        commit="abc1234",
        source="benchmarks/results/some.json",
        command="some command",
    )


Ships = Callable[..., Path]


@pytest.fixture
def ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ships:
    """Puts these winners in the place of those that ship."""

    def ship(*found: Winner) -> Path:
        path = tmp_path / "winners.jsonl.gz"
        write_winners(path, found)
        read_winners.cache_clear()
        monkeypatch.setenv("AUTOGEMM_CATALOGUE", str(path))
        return path

    return ship


def measured(run_id: int, problem: Problem, *times: tuple[Config, float]) -> DecidedRow:
    def entry(config: Config | None, own_us: float) -> FinalsEntry:
        return FinalsEntry("", config, "", (own_us,), *(10.0 / own_us,) * 3, tied=False)

    entries = sorted((entry(*pair) for pair in times), key=lambda one: one.time_us)
    spec = replace(store_samples.SPEC, problem=problem, device=H100)
    finals = Finals(tuple(entries), entry(None, 10.0), 1, spec.provenance)
    return DecidedRow(run_id, spec, finals, datetime(2026, 11, run_id, tzinfo=UTC))


def chooser(*rows: DecidedRow) -> Chooser:
    return Chooser([*rows, *shipped_rows(NAMES, H100.arch)], FAMILIES, H100)


# The catalogue that ships.


def test_what_ships_says_what_is_so_of_todays_families() -> None:
    found = list(catalogue.stale(read_winners(SHIPPED)))
    assert not found, f"made again by `{REMAKE}`:\n" + "\n".join(found)


def test_a_text_that_changed_and_a_config_that_is_no_longer_legal_are_found() -> None:
    of_today = next(one for one in read_winners(SHIPPED) if one.text is TimedText.THIS)
    assert list(catalogue.stale([of_today])) == []
    other_text = replace(of_today, kernel_sha256="0" * 64)
    assert "its text is earlier, the entry says this" in next(catalogue.stale([other_text]))
    kernel = of_today.kernels[0]
    values = {**kernel.config.as_dict(), "BM": 3}
    illegal = replace(kernel, config=Config.of(kernel.config.family, values))
    found = list(catalogue.stale([replace(of_today, kernels=(illegal,))]))
    assert len(found) == 1 and "not legal" in found[0]


def test_what_ships_is_small_and_says_where_it_is_from() -> None:
    assert SHIPPED.stat().st_size < 200_000
    found = read_winners(SHIPPED)
    gpus = {one.gpu for one in found}
    assert gpus == {find_device("h100").name, find_device("h200").name}
    for gpu in gpus:
        dtypes = {one.problem.dtype for one in found if one.gpu == gpu}
        assert dtypes >= {DType.F32, DType.BF16, DType.F16, DType.TF32}
        assert any("emulated" in one.config.family for one in found if one.gpu == gpu)
    for one in found:
        assert (data_folder("db").parent / one.source).exists()
        assert all((one.driver, one.compiler, one.cublas, one.date, one.commit, one.command))
        assert one.error is not None and one.error < 0.05
    keys = [(one.gpu, one.problem, one.l2, "emulated" in one.config.family) for one in found]
    assert len(set(keys)) == len(keys)


# The file.


def test_a_file_is_read_as_it_was_written_and_a_broken_one_is_a_line(ships: Ships) -> None:
    found = (winner(), winner(Problem(64, 64, 64, Layout.TN), SECOND))
    path = ships(*found)
    assert read_winners(path) == found
    first, second = gzip.decompress(path.read_bytes()).splitlines()
    line = json.loads(second)
    for broken, said in (
        ({**line, "guess": 1}, "line 2: guess: Unexpected keyword argument"),
        ({**line, "baseline_us": -1.0}, "line 2: baseline_us: Input should be greater than 0"),
        ({**line, "problem": {**line["problem"], "m": 0}}, "line 2: M must be from 1"),
    ):
        path.write_bytes(gzip.compress(first + b"\n" + json.dumps(broken).encode()))
        read_winners.cache_clear()
        result = CliRunner().invoke(main, ["db", "best", "--catalogue"])
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
        assert said in result.stderr and "AUTOGEMM_CATALOGUE" in result.stderr


# The choice for `autogemm.gemm`.


def test_an_empty_database_takes_the_catalogues_winner(ships: Ships) -> None:
    ships(winner(KNOWN, SECOND))
    known = chooser()
    choice = known.choose(replace(KNOWN, beta=1.0))
    assert choice.config == SECOND
    assert choice.why == "the catalogue, 2026-11-20, whose source was not kept"
    # A search in place has still something to do.
    assert not known.is_tuned(KNOWN)
    # Rows that no vector fits: another kernel, chosen among the winners.
    unaligned = known.choose(Problem(512, 512, 512, lda=513))
    assert unaligned.config["BM"] == SECOND["BM"]
    assert unaligned.why == "least of 1 expected times"


def test_a_gpu_of_this_process_reads_it_where_there_is_no_database(ships: Ships) -> None:
    ships(winner(KNOWN, SECOND), winner(Problem(64, 64, 64), THIRD, gpu=A100.name))
    gpu = Gpu(FakeDriver(), 0)  # type: ignore[arg-type]  # an H100 of a test
    assert gpu.chooser.choose(KNOWN).config == SECOND
    assert "seed of the family" in Chooser([], FAMILIES, H100).choose(KNOWN).why


def test_own_results_win_at_their_problem_and_hide_no_other(ships: Ships) -> None:
    other = Problem(2048, 2048, 2048)
    ships(winner(KNOWN, SECOND), winner(other, THIRD))
    slow = measured(1, KNOWN, (FIRST, 9.0))
    assert chooser(slow).choose(KNOWN).config == FIRST
    assert chooser(slow).is_tuned(KNOWN)
    assert chooser(slow).choose(other).config == THIRD
    # Another beta is the same kernel: the database's row, though the catalogue's problem is equal.
    with_old_c = measured(1, replace(KNOWN, beta=1.0), (FIRST, 9.0))
    assert chooser(with_old_c).choose(KNOWN).config == FIRST


def test_a_rule_of_own_crossed_results_is_not_spoiled(ships: Ships) -> None:
    rows = [
        measured(number, Problem(m, 512, 512), (FIRST, 5.0 if m > 300 else 9.0), (SECOND, 6.0))
        for number, m in enumerate((64, 128, 256, 512, 1024, 2048), 1)
    ]
    ships(winner(Problem(96, 512, 512), THIRD), winner(Problem(4096, 512, 512), THIRD))
    unseen = Problem(64, 512, 768)
    alone = Chooser(rows, FAMILIES, H100).choose(unseen)
    assert chooser(*rows).choose(unseen) == alone
    assert "nearest" not in alone.why and alone.config == SECOND


def test_emulation_other_architectures_and_cold_caches(ships: Ships) -> None:
    ships(
        winner(KNOWN, FIRST),
        winner(KNOWN, EMULATED, ratio=3.0),
        winner(KNOWN, SECOND, gpu=A100.name),
    )
    assert [row.finals.winner.config for row in shipped_rows(NAMES, H100.arch)] == [FIRST]
    both = [*NAMES, EMULATED.family]
    assert [row.finals.winner.config for row in shipped_rows(both, H100.arch)] == [EMULATED]
    assert [row.finals.winner.config for row in shipped_rows(NAMES, 80)] == [SECOND]
    assert len(shipped_rows(NAMES)) == 2
    assert shipped_winners(BestQuery(run_id=1)) == []


# Warm starts.


def test_a_search_starts_from_the_catalogue_unless_there_is_something_nearer(ships: Ships) -> None:
    ships(winner(KNOWN, SECOND))
    spec = replace(store_samples.SPEC, problem=KNOWN, device=H100)
    shipped = shipped_rows(NAMES)
    (start,) = warm_starts(shipped, spec, FAMILIES, 9)
    assert start.configs == (SECOND,)
    assert str(start).endswith("(the catalogue, 2026-11-20, whose source was not kept)")
    near = measured(1, Problem(512, 512, 768), (THIRD, 5.0))
    assert [one.configs[0] for one in warm_starts([*shipped, near], spec, FAMILIES, 9)] == [
        *(SECOND, THIRD)
    ]
    # An own result of the same problem from another place hides the catalogue's.
    other = measured(1, KNOWN, (FIRST, 5.0))
    other = replace(other, spec=replace(other.spec, environment=Environment(driver="570.1")))
    assert [one.configs[0] for one in warm_starts([*shipped, other], spec, FAMILIES, 9)] == [FIRST]


def test_tune_reads_it(ships: Ships, tmp_path: Path) -> None:
    family = tiny_family(tmp_path / "tiny")
    best = Config.of("tiny", {**family.seeds[0].as_dict(), "BM": 64})
    assert best not in family.seeds
    ships(winner(KNOWN, best))
    started: list[tuple[str, ...]] = []

    def listen(event: object) -> None:
        if isinstance(event, SearchStarted):
            started.append(event.started_from)

    request = TuneRequest(KNOWN, (family,), trials=3, rounds=2)
    with open_store(str(tmp_path / "tune.db")) as store:
        for one in (request, replace(request, warm_start=False)):
            target: FakeTarget = SizedTarget()
            result = tune(one, target, FakeCompiler(), store, listen)  # type: ignore[arg-type]
            assert (result.outcomes[0].config == best) is one.warm_start
    assert [len(one) for one in started] == [1, 0] and "catalogue" in started[0][0]


# The command line.


def test_the_catalogue_is_listed_and_marked_as_recorded(ships: Ships) -> None:
    errors = {"error": 1.5e-6, "baseline_error": 2.5e-6}
    known = replace(winner(), **errors)
    ships(known, winner(Problem(64, 64, 64, Layout.NT, DType.BF16), SECOND))

    def listed(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["db", "best", "--catalogue", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    rows = json.loads(listed("--json"))
    assert [row["size"] for row in rows] == ["512", "64"]
    assert {name: rows[0][name] for name in errors} == errors
    assert rows[1]["error"] is None
    assert rows[0]["provenance"] == "recorded" and rows[0]["text"] == "unknown"
    assert rows[0]["source"] == "benchmarks/results/some.json"
    assert rows[0]["config"] == FIRST.as_dict()
    assert rows[0]["tflops"] == pytest.approx(KNOWN.tflops(10.0 / 1.5))
    (row,) = csv.DictReader(io.StringIO(listed("--csv", "--dtype", "bf16", "--gpu", "H100")))
    assert (row["layout"], row["ratio"]) == ("nt", "1.5")
    assert "recorded" in listed("--size", "512") and "unknown" in listed("--size", "512")
    assert listed("--size", "77") == ""


@pytest.mark.parametrize("arguments", [("--db", "mine.db"), ("--run", "3")])
def test_the_catalogue_has_no_database_and_no_runs(
    ships: Ships, arguments: tuple[str, str]
) -> None:
    ships(winner())
    result = CliRunner().invoke(main, ["db", "best", "--catalogue", *arguments])
    assert result.exit_code == 2 and result.stdout == ""
    assert arguments[0] in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_library_of_an_empty_database_is_made_from_the_catalogue(
    ships: Ships, tmp_path: Path
) -> None:
    small = Problem(64, 64, 64)
    ships(winner(small, SECOND), winner(small, FIRST, gpu=find_device("h200").name))
    command = ["export", "--library", str(tmp_path / "out"), "--db", str(tmp_path / "no.db")]
    several = CliRunner().invoke(main, command)
    assert several.exit_code == 2
    assert "--gpu 'H100' or --gpu 'H200'" in several.stderr
    done = CliRunner().invoke(main, [*command, "--gpu", "H100", "--layout", "nn"])
    assert done.exit_code == 0, done.output
    assert "made from the catalogue" in done.output and "RECORDED" in done.output
    assert "RECORDED" in (tmp_path / "out" / "autogemm.h").read_text()
    assert SECOND.label.split()[0] in (tmp_path / "out" / "gemm_f32.cu").read_text()
    nothing = CliRunner().invoke(main, [*command, "--gpu", "b200"])
    assert nothing.exit_code == 2 and "no result matches" in nothing.stderr
