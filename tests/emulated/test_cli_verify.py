"""``autogemm verify``: what passes, what fails and how it is told, what cannot be asked."""

import json
import re
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autogemm.catalogue.ladder import find_rung
from autogemm.cli import main
from autogemm.emulator import Emulator
from autogemm.model.config import Config
from autogemm.space import load_family
from autogemm.support.resources import data_folder
from autogemm.verify.cases import Case, CaseResult, Check

pytestmark = pytest.mark.emulated

ONE_CONFIG = [
    *("BM=16", "BN=32", "BK=8", "WM=8", "WN=32", "TM=2", "TN=4", "STAGES=2", "REG_STAGES=1"),
    *("PAD_A=4", "PAD_B=0", "VEC_LOAD=4", "VEC_STORE=4", "MIN_BLOCKS=1", "GROUP_M=1"),
    *("FMA_ORDER=rows", "LANE_MAP=rows", "SLICE_K=1", "SPLIT_K=1", "STREAM_BLOCKS=0"),
    *("HANDOVER=5", "EDGES=guarded", "PACK=0", "SLICES=shared", "POINTERS=derived", "CHAIN_K=0"),
    "PDL=none",
]


@pytest.fixture
def verify(emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # noqa: ANN201
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "none.db"))

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["verify", "--gpu", "h100", *arguments])

    return call


def fixes(texts: list[str]) -> list[str]:
    return [part for text in texts for part in ("--fix", text)]


@pytest.fixture(scope="module")
def broken_family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sgemm_simt with one slip: vectors are stored over the right edge of C."""
    folder = tmp_path_factory.mktemp("broken")
    templates = data_folder("templates")
    shutil.copy(data_folder("search_spaces") / "sgemm_simt.yaml", folder)
    (folder / "seeds").mkdir()
    shutil.copy(data_folder("search_spaces") / "seeds" / "sgemm_simt.yaml", folder / "seeds")
    shutil.copy(templates / "sgemm_simt.cu.jinja", folder)
    # A part of the family's own stands in for the shipped one of this name.
    store = (templates / "parts" / "epilogue" / "store_vector.cu.jinja").read_text()
    assert "n + VEC_C <= tile.columns" in store
    (folder / "parts" / "epilogue").mkdir(parents=True)
    (folder / "parts" / "epilogue" / "store_vector.cu.jinja").write_text(
        store.replace("n + VEC_C <= tile.columns", "n < tile.columns")
    )
    return folder


def test_a_config_passes_on_the_edge_cases(verify) -> None:  # noqa: ANN001
    result = verify(*fixes(ONE_CONFIG), "--mode", "fast")
    assert result.exit_code == 0, result.output
    assert "88 cases passed, 0 skipped" in result.output


def test_json_has_a_row_for_each_case_with_the_config_that_was_legal(verify) -> None:  # noqa: ANN001
    """16-byte vectors are not legal for rows of an odd number of floats."""
    result = verify(*fixes(ONE_CONFIG), "--mode", "fast", "--json")
    rows = json.loads(result.stdout)
    assert len(rows) == 88
    assert all(row["ok"] and row["on"] == "cpu" and row["config"]["BM"] == 16 for row in rows)
    used = {row["problem"]: row["config"]["VEC_LOAD"] for row in rows}
    packed = {name: width for name, width in used.items() if "ld" not in name}
    assert {width for name, width in packed.items() if name.startswith("1 ")} == {1}
    assert 4 in used.values()


def test_a_rung_of_the_ladder_with_every_value_of_fix(
    verify,  # noqa: ANN001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Config] = []

    def no_run(
        check: Check, cases: list[Case], workers: int | None
    ) -> Generator[CaseResult | None]:
        asked.extend(dict.fromkeys(case.config for case in cases))
        yield from [None] * len(cases)

    monkeypatch.setattr("autogemm.cli.kernels.run.verify.run_cases", no_run)
    assert "nothing was run" in verify("--rung", "naive", "--fix", "UNROLL=0,4").stderr
    rung = find_rung("naive").config(load_family("naive").seeds[0]).as_dict()
    wanted = [Config.of("naive", rung | {"UNROLL": unroll}) for unroll in (0, 4)]
    assert set(asked) == set(wanted)
    assert len(asked) == 2


def test_without_a_config_it_ends_in_time_and_says_how_much_ran(
    verify,  # noqa: ANN001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def passed(check: Check, cases: list[Case], workers: int | None) -> Generator[CaseResult]:
        for case in cases:
            yield CaseResult(case, True, "", 0.1, 0.0)

    monkeypatch.setattr("autogemm.cli.kernels.run.verify.run_cases", passed)
    monkeypatch.setattr("autogemm.cli.kernels.run.verify.BUDGET_S", 0.0)
    last = verify("--family", "naive").stdout.splitlines()[-1]
    found = re.fullmatch(r"these are 1 of (\d+) cases, all that 0 s allow; (.*)", last)
    assert found is not None, last
    assert "--budget none" in found[2]
    assert f"\n{found[1]} cases passed" in verify("--family", "naive", "--budget", "none").stdout
    # Time enough: small problems, then the others, and nothing is left to be said.
    patient = verify("--family", "naive", "--budget", "1h").stdout
    assert f"\n{found[1]} cases passed" in patient
    assert "these are" not in patient
    # Of configs that are restricted as well, each of which runs once.
    fixed = ("--family", "naive", "--fix", "UNROLL=0,4", "--dtype", "f32", "--budget")
    (count,) = re.findall(r"\n(\d+) cases passed", verify(*fixed, "none").stdout)
    assert f"\n{count} cases passed" in verify(*fixed, "1h").stdout
    assert f"these are 1 of {count} cases" in verify(*fixed, "0.001s").stdout
    # One config is small enough to be run as a whole.
    assert "these are" not in verify("--rung", "naive").stdout
    # A time that is given holds for all of them.
    for chosen in (("--rung", "naive"), ("--sample", "2")):
        last = verify("--family", "naive", *chosen, "--budget", "0.001s").stdout.splitlines()[-1]
        assert re.match(r"these are 1 of \d+ cases, all that 0.001 s allow; ", last), last
    refused = verify("--budget", "soon")
    assert refused.exit_code == 2
    assert "'soon' is not a time" in refused.stderr


def test_a_failure_names_the_smallest_problem_the_config_and_the_line(
    verify,  # noqa: ANN001
    broken_family: Path,
) -> None:
    result = verify("--family", str(broken_family), *fixes(ONE_CONFIG))
    assert result.exit_code == 1
    assert "smallest problem found: 1 " in result.stderr
    assert "BM=16 BN=32" in result.stderr
    assert "out of bounds: C[0,0] write of" in result.stderr
    assert "cases failed; " in result.stderr
    assert "more were not run" in result.stderr
    assert "Traceback" not in result.output


def test_planted_bugs_are_caught_or_shown(verify) -> None:  # noqa: ANN001
    result = verify("--mutate", "naive", "--mutants", "2", "--seed", "2", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert len(rows) == 2
    assert all(row["line"] != row["new"] and row["rule"] for row in rows)
    caught = [row for row in rows if row["fate"] == "caught"]
    assert caught
    assert all(row["message"] and row["problem"] for row in caught)
    result = verify("--mutate", "naive", "--mutants", "1", "--seed", "2")
    assert result.stdout.splitlines()[-1] == f"1 {rows[0]['fate']}"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--kernel", "1", "--sample", "2"], 2, "--kernel names one config"),
        (["--kernel", "1", "--rung", "tiled"], 2, "--kernel names one config"),
        (["--rung", "tiled", "--sample", "2"], 2, "--rung and --sample exclude each other"),
        (["--kernel", "1"], 2, "none.db"),
        (["--sample", "0"], 2, "0 is not in the range"),
        (["--fix", "BM=17", "--sample", "1"], 2, "BM has no value 17"),
        (["--family", "nothing"], 2, "nothing"),
        (["--mutate", "naive", "--on", "gpu"], 2, "leave out --kernel and --on"),
    ],
)
def test_what_cannot_be_asked(verify, arguments: list[str], code: int, words: str) -> None:  # noqa: ANN001
    result = verify(*arguments)
    assert result.exit_code == code, result.output
    assert words in result.output
    assert "Traceback" not in result.output


def test_a_missing_compiler_is_one_line(verify, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN001
    monkeypatch.setenv("AUTOGEMM_GXX", "no-such-g++")
    result = verify(*fixes(ONE_CONFIG))
    assert result.exit_code == 1
    assert "the emulator needs g++" in result.output
    assert len(result.output.strip().splitlines()) == 1
