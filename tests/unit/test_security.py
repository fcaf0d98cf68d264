"""Files of others are data: no file, database or option puts its text into a kernel.

The attack: a config with a text where a number is declared, which stands in the emitted kernel, and
that is compiled by g++ and run on the CPU. docs/security.md says what is trusted.
"""

import gzip
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from exchange_samples import written
from export_samples import split_family, stored_kernel
from kernel_tuner_caches import cache_text
from store_samples import ENVIRONMENT, H100, SPEC, VERIFIED, measurement, new_store

from autogemm.cli import main
from autogemm.codegen import render
from autogemm.codegen.export import export_cuda
from autogemm.exchange import Format
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, FinalsEntry, Outcome, Provenance, Status
from autogemm.space import load_family
from autogemm.store import RunSpec, Store, open_store
from autogemm.support.errors import ExportError, UsageError

FAMILY = load_family("gemm_mma")
SEED = FAMILY.seeds[0]
PROBLEM = Problem(512, 512, 512, dtype=DType.F16)
RECORDED = replace(
    SPEC, problem=PROBLEM, families=("gemm_mma",), fix=(), provenance=Provenance.RECORDED
)
CLEAN = render(FAMILY, SEED, PROBLEM)
GROUP_M = f"GROUP_M = {SEED['GROUP_M']};"

needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def code(made: Path) -> str:
    """A value that makes a file once the kernel that it stands in is loaded on the CPU."""
    return f'8; int s_(const char*) asm("system"); const int r_ = s_("touch {made}")'


def hostile_source(made: Path) -> KernelSource:
    """The text that a template would make of it."""
    assert GROUP_M in CLEAN.text
    text = CLEAN.text.replace(GROUP_M, f"GROUP_M = {code(made)};")
    config = Config.of("gemm_mma", SEED.as_dict() | {"GROUP_M": code(made)})
    return replace(CLEAN, config=config, text=text)


def add_winner(store: Store, source: KernelSource, spec: RunSpec = RECORDED) -> None:
    run_id = store.begin_run(spec)
    outcome = Outcome(
        config=source.config,
        status=Status.OK,
        kernel_sha256=source.sha256,
        verification=VERIFIED,
        measurement=measurement(100.0, provenance=spec.provenance),
    )
    store.record_trial(run_id, 0, outcome, source)
    entry = FinalsEntry("winner", source.config, source.sha256, (99.0,), 1.02, 1.01, 1.03, False)
    baseline = FinalsEntry("cuBLAS", None, "", (101.0,), 1.0, 1.0, 1.0, False)
    store.record_finals(run_id, Finals((entry,), baseline, 1, spec.provenance), {})


def database(folder: Path, made: Path) -> str:
    """One of somebody else, who wrote into it what they like."""
    folder.mkdir()
    with new_store(folder) as store:
        add_winner(store, hostile_source(made))
    return str(folder / "a.db")


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def expect_one_line(result: Result, exit_code: int, *words: str) -> None:
    assert result.exit_code == exit_code, result.output
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the attack makes; the working folder and database are empty ones."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "mine.db"))
    return tmp_path / "made"


def jsonl_file(folder: Path, made: Path) -> Path:
    folder.mkdir()
    with new_store(folder) as store:
        add_winner(store, CLEAN)
        path = written(store, Format.JSONL, folder / "a.jsonl")
    source = hostile_source(made)
    lines = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        for part in ("source", "outcome"):
            if part in record:
                record[part]["config"]["values"] = source.config.as_dict()
        if "source" in record:
            record["source"]["text"] = source.text
        lines.append(json.dumps(record).replace(CLEAN.sha256, source.sha256))
    path.write_text("\n".join(lines) + "\n")
    return path


def csv_file(folder: Path, made: Path) -> Path:
    folder.mkdir()
    with new_store(folder) as store:
        add_winner(store, CLEAN)
        path = written(store, Format.CSV, folder / "a.csv")
    value = json.dumps(code(made)).replace('"', '""')
    text = path.read_text()
    assert f'""GROUP_M"": {SEED["GROUP_M"]}' in text
    path.write_text(text.replace(f'""GROUP_M"": {SEED["GROUP_M"]}', f'""GROUP_M"": {value}'))
    return path


def kernel_tuner_file(folder: Path, made: Path) -> Path:
    folder.mkdir()
    path = folder / "cache.json"
    row = SEED.as_dict() | {"GROUP_M": code(made), "time": 1.0}
    text = cache_text(
        kernel_name="gemm_mma", tune_params_keys=list(SEED.as_dict()), cache={"a": row}
    )
    path.write_text(text)
    return path


def t4_file(folder: Path, made: Path) -> Path:
    folder.mkdir()
    with new_store(folder) as store:
        add_winner(store, CLEAN)
        path = written(store, Format.T4, folder / "a.json")
    text = path.read_text()
    value = f'"GROUP_M": {SEED["GROUP_M"]}'
    assert value in text
    path.write_text(text.replace(value, f'"GROUP_M": {json.dumps(code(made))}'))
    return path


@pytest.mark.parametrize("file", [jsonl_file, csv_file, kernel_tuner_file, t4_file])
def test_a_file_with_code_is_not_imported(
    tmp_path: Path, made: Path, file: Callable[[Path, Path], Path]
) -> None:
    path = file(tmp_path / "theirs", made)
    size = ("--size", "512") if path.suffix == ".json" else ()
    expect_one_line(call("db", "import", str(path), *size), 1, "GROUP_M", "one word of letters")
    with open_store(str(tmp_path / "mine.db")) as store:
        assert store.runs() == []


def test_a_number_of_a_known_family_is_no_word_either(tmp_path: Path, made: Path) -> None:
    path = jsonl_file(tmp_path / "theirs", made)
    text = path.read_text()
    path.write_text(text.replace(json.dumps(code(made)), '"system"'))
    expect_one_line(call("db", "import", str(path)), 1, "GROUP_M is an integer of 32 bits")


def test_a_database_with_code_is_not_merged(tmp_path: Path, made: Path) -> None:
    other = database(tmp_path / "theirs", made)
    expect_one_line(call("db", "merge", other), 1, "GROUP_M", "nothing was taken")
    with open_store(str(tmp_path / "mine.db")) as store:
        assert store.runs() == []


def test_nor_is_one_on_a_server(tmp_path: Path, made: Path, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        add_winner(store, hostile_source(made))
    expect_one_line(call("db", "merge", postgres_url), 1, "GROUP_M", "nothing was taken")
    expect_one_line(call("export", "--db", postgres_url, "a.cu"), 2, "GROUP_M")


COMMANDS = {
    "export": ["export", "a.cu"],
    "export ptx": ["export", "--format", "ptx", "a.cu"],
    "verify": ["verify", "--family", "gemm_mma", "--kernel", "1", "--gpu", "h100"],
    "explain": ["explain", "1"],
}


@pytest.mark.emulated
@needs_gxx
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_what_a_database_says(tmp_path: Path, made: Path, name: str) -> None:
    """The attack itself: the kernel of a results database is rendered, compiled and run."""
    other = database(tmp_path / "theirs", made)
    assert "GROUP_M=8; int s_" in call("db", "list", "--trials", "--db", other).stdout, "it is data"
    expect_one_line(call(*COMMANDS[name], "--db", other), 2, "GROUP_M is an integer of 32 bits")
    assert not made.exists()
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("devices", "facts", '{"arch": "90) execute_process(COMMAND evil"}'),
        ("devices", "facts", '{"num_sms": "1; evil()"}'),
        ("problems", "m", "1; evil()"),
        ("problems", "lda", "1; evil()"),
        ("problems", "alpha", "1; evil()"),
    ],
)
def test_numbers_of_a_database_are_numbers(
    tmp_path: Path, made: Path, table: str, column: str, value: str
) -> None:
    """They stand in launchers and CMake files; SQLite keeps whatever is written."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    with new_store(folder) as store:
        add_winner(store, CLEAN)
    path = folder / "a.db"
    new = f"json_patch({column}, ?)" if column == "facts" else "?"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = {new}", (value,))
    for command in (["export", "a.cu"], ["export", "--library", "made"]):
        expect_one_line(call(*command, "--db", str(path)), 1, "a.db")
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("value", [code(Path("x")), "8", True, 8.0, 3, 2**31, None, [8], ""])
def test_a_kernel_is_rendered_of_declared_values_alone(value: Any) -> None:
    config = Config.of("gemm_mma", SEED.as_dict() | {"GROUP_M": value})
    with pytest.raises(UsageError, match="GROUP_M"):
        render(FAMILY, config, PROBLEM)


@pytest.mark.parametrize("value", ["rows; evil()", "rows\n", "", "columns", 1])
def test_texts_are_declared_too(value: Any) -> None:
    simt = load_family("sgemm_simt")
    config = Config.of("sgemm_simt", simt.seeds[0].as_dict() | {"FMA_ORDER": value})
    with pytest.raises(UsageError, match="FMA_ORDER"):
        render(simt, config, Problem(512, 512, 512))


def test_results_of_former_versions_stay_readable(tmp_path: Path, made: Path) -> None:
    """A value that the family had once is data; it is refused where it would be rendered."""
    config = Config.of("gemm_mma", SEED.as_dict() | {"GROUP_M": 3})
    folder = tmp_path / "former"
    folder.mkdir()
    with new_store(folder) as store:
        add_winner(store, replace(CLEAN, config=config))
    assert call("db", "merge", str(folder / "a.db")).exit_code == 0
    assert "GROUP_M=3" in call("db", "list", "--trials").stdout
    expect_one_line(call("export", "a.cu"), 2, "GROUP_M=3 is not a value", "1 4 8 16")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", json.dumps(SEED.as_dict() | {"GROUP_M": code(Path("x"))})],
        ["--config", json.dumps(SEED.as_dict() | {"GROUP_M": True})],
        ["--fix", f"GROUP_M={code(Path('x'))}"],
    ],
)
def test_options_give_declared_values(made: Path, arguments: list[str]) -> None:
    asked = ["render", "--family", "gemm_mma", "--dtype", "f16", *arguments, "-o", "a.cu"]
    expect_one_line(call(*asked), 2, "GROUP_M")
    assert list(Path.cwd().iterdir()) == []


def test_seeds_and_search_spaces_hold_words(tmp_path: Path, made: Path) -> None:
    split_family(tmp_path / "split")
    path = tmp_path / "split" / "split.yaml"
    whole = path.read_text()
    for before, after in (
        ("BM: 16, SPLIT", f"BM: '{code(made)}', SPLIT"),
        ("{values: [16, 32],", f"{{values: ['{code(made)}'],"),
        ("kernel: gemm_kernel", "kernel: 'gemm_kernel(); evil'"),
        ("family: split", "family: 'split*/'"),
    ):
        assert before in whole
        path.write_text(whole.replace(before, after, 1))
        expect_one_line(call("render", "--family", str(path), "-o", "a.cu"), 1, "split.yaml")
    assert list(Path.cwd().iterdir()) == []


HIDDEN = '// autogemm, family gemm_mma: \\\n#include "evil.h"\n'
HEADS = {
    "a line of code": "// autogemm, family x:\nint evil = 1;\n\n",
    "a continued line": "// autogemm, family x: \\\n\n",
    "a trigraph": "// autogemm, family x: ??/\n\n",
    "a return": "// autogemm, family x:\rint evil = 1;\n\n",
}


@pytest.mark.parametrize("head", HEADS)
def test_code_in_the_first_comment_of_a_kernel_is_code(head: str) -> None:
    """The comment that names family and config may differ from today's; code may not."""
    kernel = stored_kernel(FAMILY, PROBLEM)
    evil = replace(CLEAN, text=HEADS[head] + CLEAN.code)
    with pytest.raises(ExportError, match="another version of the family"):
        export_cuda(replace(kernel, source=evil), FAMILY, "a.cu", date(2026, 1, 1))
    renamed = replace(CLEAN, text=f"// autogemm, family gemm_mma: OLD=1\n\n{CLEAN.code}")
    assert "OLD=1" in export_cuda(replace(kernel, source=renamed), FAMILY, "a.cu", date(2026, 1, 1))


# Ends of comments, continued lines (trigraphs too, and ones that come about when a character is
# replaced), ends of texts and of statements.
NAMES = [
    "GPU */ int evil; /*",
    "GPU\n#error evil",
    "GPU\r#error evil",
    "GPU\u2028#error evil",
    "GPU \\",
    "GPU ??/",
    "GPU ?\x01/",
    "GPU \x01\x02\\",
    "GPU ????/",
    '";evil();"',
    "$(evil) `evil` ${evil}",
    "\U0001f4a9 \ud800",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_stay_in_comments_and_texts(tmp_path: Path, name: str) -> None:
    family = split_family(tmp_path / "split")
    environment = replace(ENVIRONMENT, driver=name, compiler=name, autogemm=name)
    kernel = stored_kernel(
        family, Problem(64, 64, 64), device=replace(H100, name=name), environment=environment
    )
    text = export_cuda(kernel, family, "a.cu", date(2026, 1, 1))
    plain = export_cuda(
        stored_kernel(family, Problem(64, 64, 64)), family, "a.cu", date(2026, 1, 1)
    )
    assert "??/" not in text and "\r" not in text and "\u2028" not in text

    def code_of(whole: str) -> list[str]:
        lines = [line for line in whole.split("\n") if not line.startswith("//")]
        assert not any(line.endswith("\\") for line in whole.split("\n") if line.startswith("//"))
        return [line for line in lines if "tuned_on =" not in line]

    assert code_of(text) == code_of(plain)
    (tuned_on,) = (line for line in text.split("\n") if "tuned_on =" in line)
    literal = tuned_on.partition(" = ")[2].removesuffix(";")
    assert "\\u" not in literal, "a surrogate is no character in C++"
    assert isinstance(json.loads(literal), str), "one text from its first to its last quote"


def test_a_file_that_unpacks_to_millions_of_entries(tmp_path: Path, made: Path) -> None:
    """A megabyte of them were 4.7 GB in memory."""
    path = tmp_path / "cache.json.gz"
    head, _, tail = cache_text(tune_params_keys=["MWG"], cache={"?": 0}).partition('"?": 0')
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head.encode() + b'"1":{"MWG":1},' * 500_001 + b'"2":{"MWG":2}' + tail.encode())
    expect_one_line(call("db", "import", str(path)), 1, "more than 500000 entries")
