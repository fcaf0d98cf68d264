"""Input that is damaged, of another kind, empty or endless: one short line, typed for real."""

import csv
import gzip
import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from bench_samples import fill_bench
from click.testing import CliRunner, Result
from fake_target import TEMPLATE, YAML
from store_samples import fill, new_store, ok, source
from t1_samples import t1_content

from autogemm.cli import main
from autogemm.store import BestQuery, open_store
from autogemm.support.errors import StoreError, UsageError
from autogemm.support.resources import data_folder

PAGE = 4096
# Every way of reading, and some of writing.
READING = [
    *("db best", "db list", "db list --trials", "db show run:1", "db show 1", "db history"),
    *("db stats", "db export -f jsonl", "db export --csv", "db why 1 --short", "db pareto"),
    *("db compare run:1 run:2", "export -", "db prune --run 1 --yes", "roofline"),
    "tune --gpu recorded --size 4096 --trials 1",
]


def typed(*words: str, db: Path | None = None) -> Result:
    """The result of a command, which ended by itself and said no more than a person reads."""
    database = ["--db", str(db)] if db is not None else []
    result = CliRunner().invoke(main, [*words, *database], prog_name="autogemm")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if result.exit_code:
        last = result.stderr.splitlines()[-1]
        assert last.startswith("Error: ")
        assert len(last) < 2300
        assert last.isprintable()
    return result


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database of runs, a benchmark and enough trials for an index of several pages."""
    folder = tmp_path_factory.mktemp("good")
    with new_store(folder) as store:
        fill(store)
        fill_bench(store)
        run = store.begin_run(store.run(1).spec)
        for number in range(40):
            bm = 1000 + number
            store.record_trial(run, number, ok(bm, 100.0 + number), source(bm))
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return (folder / "a.db").read_bytes()


@pytest.fixture
def edited(good: bytes, tmp_path: Path) -> Callable[[str], Path]:
    """A function that gives a copy in which one statement was run."""

    def edit(statement: str) -> Path:
        path = tmp_path / "edited.db"
        path.write_bytes(good)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path

    return edit


def zeroed(draw: random.Random, data: bytearray) -> None:
    for _ in range(draw.choice((1, 5))):
        at = PAGE * draw.randrange(1, len(data) // PAGE)
        data[at : at + PAGE] = bytes(PAGE)


def swapped(draw: random.Random, data: bytearray) -> None:
    pages = range(PAGE, len(data) - PAGE, PAGE)
    for _ in range(3):
        a, b = draw.sample(pages, 2)
        data[a : a + PAGE], data[b : b + PAGE] = data[b : b + PAGE], data[a : a + PAGE]


def scattered(draw: random.Random, data: bytearray) -> None:
    for _ in range(draw.choice((20, 400))):
        data[draw.randrange(100, len(data))] = draw.randrange(256)


@pytest.mark.parametrize("damage", [zeroed, swapped, scattered])
@pytest.mark.parametrize("seed", range(2))
def test_damaged_pages(
    good: bytes, tmp_path: Path, damage: Callable[[random.Random, bytearray], None], seed: int
) -> None:
    data = bytearray(good)
    damage(random.Random(seed), data)
    failed = 0
    for number, words in enumerate(READING[:-1]):
        path = tmp_path / f"{number}.db"
        path.write_bytes(data)
        failed += typed(*words.split(), db=path).exit_code != 0
    assert failed or damage is scattered


# A statement and a command that reads what it changed.
KINDS = [
    ("UPDATE kernels SET config = '[1, 2]'", "db show 1"),
    ("UPDATE kernels SET config = '[1, 2]'", "export -"),
    ("UPDATE run_trials SET config = '7'", "db list --trials"),
    ("UPDATE run_trials SET config = '{\"BM\": [1]}'", "db list --trials"),
    ("UPDATE run_trials SET config = '{\"BM\": ' || printf('%.5000d', 9) || '}'", "db export"),
    (f"UPDATE run_trials SET config = '{'[' * 3000}'", "db export"),
    ("UPDATE finals_entries SET config = '[1]'", "db best"),
    ("UPDATE measurements SET samples_us = '{\"a\": 1}'", "db list --trials"),
    ("UPDATE measurements SET samples_us = '\"ab\"'", "db why 1 --short"),
    ("UPDATE finals_entries SET samples_us = '[\"a\"]'", "db show run:1"),
    ("UPDATE finals_entries SET ratio = 'abc'", "db best"),
    ("UPDATE finals_entries SET ratio = x'ff00'", "db show run:1"),
    ("UPDATE run_trials SET time_us = 'abc'", "db list"),
    ("UPDATE run_trials SET status = 'fine'", "db export -f jsonl"),
    ("UPDATE measurements SET l2 = 'lukewarm'", "db export --json"),
    ("UPDATE measurements SET samples_us = '[1, [2]]'", "db export --csv"),
    ("UPDATE runs SET fix = '[1]'", "db list"),
    ("UPDATE runs SET started_at = 'yesterday'", "db list"),
    ("UPDATE devices SET facts = '[]'", "tune --gpu recorded --size 4096 --trials 1"),
    ("UPDATE devices SET facts = json_set(facts, '$.name', 5)", "db list"),
    ("UPDATE run_trials SET reason = CAST(x'ff41' AS TEXT)", "db list --trials"),
    ("UPDATE devices SET name = CAST(x'ff41' AS TEXT)", "db stats"),
]


@pytest.mark.parametrize(("statement", "words"), KINDS)
def test_a_cell_of_another_kind(edited: Callable[[str], Path], statement: str, words: str) -> None:
    result = typed(*words.split(), db=edited(statement))
    assert result.exit_code == 1
    assert "edited.db" in result.stderr


FIRST = "= (SELECT min(id) FROM run_trials)"


def test_samples_of_another_kind_are_quoted(edited: Callable[[str], Path]) -> None:
    damage = f"UPDATE measurements SET samples_us = '[1, \"x\"]' WHERE trial_id {FIRST}"
    result = typed("db", "export", "--csv", db=edited(damage))
    assert result.exit_code == 1
    assert "\"[1, 'x']\" is not a JSON list of numbers" in result.stderr


def test_a_number_that_is_kept_as_bytes_is_read_as_a_number(edited: Callable[[str], Path]) -> None:
    path = edited(f"UPDATE run_trials SET compile_seconds = CAST('1.625' AS BLOB) WHERE id {FIRST}")
    rows = list(csv.DictReader(typed("db", "export", "--csv", db=path).stdout.splitlines()))
    assert [float(row["compile_seconds"]) for row in rows].count(1.625) == 1


@pytest.mark.parametrize("words", READING)
@pytest.mark.parametrize(
    ("statement", "lacks"),
    [
        ("ALTER TABLE finals DROP COLUMN rounds", "the column rounds of finals"),
        ("DROP TABLE certificates", "the table certificates"),
    ],
)
def test_every_command_notices_what_the_schema_lacks(
    edited: Callable[[str], Path], statement: str, lacks: str, words: str
) -> None:
    result = typed(*words.split(), db=edited(statement))
    assert result.exit_code == 1
    assert f"edited.db lacks {lacks}" in result.stderr


def test_a_schema_that_would_drive_the_terminal(edited: Callable[[str], Path]) -> None:
    path = edited("CREATE TABLE other (a)")
    strange = b"CREATE T\x1b\x07\xff\x9b oth "
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE other", strange))
    assert typed("db", "best", db=path).exit_code == 1


def test_a_bug_keeps_its_traceback_where_the_file_is_sound(
    good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sound.db").write_bytes(good)

    def broken(*_: object) -> None:
        raise AttributeError("a bug")

    monkeypatch.setattr("autogemm.store.queries.best.best_rows", broken)
    with open_store(str(tmp_path / "sound.db")) as store:
        with pytest.raises(AttributeError):
            store.best()
        with closing(sqlite3.connect(tmp_path / "sound.db")) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("DELETE FROM devices")
            connection.commit()
        with pytest.raises(StoreError, match="is damaged"):
            store.best()


QUERIES = re.findall(
    r"^```sql\n(.*?)^```",
    (Path(__file__).parents[2] / "db" / "README.md").read_text(),
    flags=re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize(
    "query", [*QUERIES, "SELECT id, config, NULL AS reason, 1 AS kernel_sha256 FROM run_trials"]
)
@pytest.mark.parametrize("form", ["", "--json", "--csv"])
def test_db_sql_runs_every_query_of_the_readme(
    good: bytes, tmp_path: Path, query: str, form: str
) -> None:
    (tmp_path / "a.db").write_bytes(good)
    result = typed("db", "sql", query, *form.split(), db=tmp_path / "a.db")
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) > 1


LONG = "z" * 80_000


@pytest.mark.parametrize(
    "words",
    [
        *(["db", "best", "--size", LONG], ["db", "show", f"run:{LONG}"], ["db", "sql", LONG]),
        *(["render", "--family", LONG], ["render", "--config", f'{{"BM": "{LONG}"}}'], [LONG]),
        *(["render", "--fix", f"BM={LONG}"], [f"--{LONG}"], ["tune", "--budget", "z " * 40_000]),
        *(["db", "best", "--db", f"/tmp/{LONG}.db"], ["db", "import", f"/tmp/{LONG}"]),
        ["tune", "--gpu", "recorded", "--trials", "1", "--db", f"{LONG}/a.db"],
    ],
)
def test_what_a_message_quotes_is_cut(words: list[str], good: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(good)
    is_asked = words[0] == "db" and "--db" not in words
    assert typed(*words, db=tmp_path / "a.db" if is_asked else None).exit_code in (1, 2)


ENDLESS = Path("/dev/zero")


@pytest.mark.skipif(not ENDLESS.exists(), reason="needs /dev/zero")
@pytest.mark.parametrize(
    "words",
    [
        "tune --gpu recorded --problems /dev/zero",
        "bench --sizes @/dev/zero",
        "profile tiled --gpu h100 --from /dev/zero",
    ],
)
def test_a_file_without_an_end(words: str, tmp_path: Path) -> None:
    result = typed(*words.split(), db=tmp_path / "a.db")
    assert result.exit_code == 2
    assert "larger than" in result.stderr


@pytest.fixture
def short_fields() -> Iterator[None]:
    """The limit of the csv module as Python starts with it; libraries raise it for the process."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


@pytest.mark.usefixtures("short_fields")
def test_a_counter_page_with_a_field_too_long(tmp_path: Path) -> None:
    page = tmp_path / "page.csv"
    page.write_text(f'"ID","Kernel Name"\n"",""\n"0","{"k" * 140_000}"\n')
    words = ["profile", "tiled", "--gpu", "h100", "--from", str(page)]
    assert "field larger than" in typed(*words, db=tmp_path / "a.db").stderr


@pytest.mark.parametrize("seed", [2**63, 2**64, -1])
def test_a_seed_that_no_database_keeps(seed: int, tmp_path: Path) -> None:
    words = ["tune", "--gpu", "recorded", "--trials", "1", "--seed", str(seed)]
    assert typed(*words, db=tmp_path / "a.db").exit_code == 2
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("words", [*READING[:4], "db export", "export -", "db pareto"])
@pytest.mark.parametrize(
    "empty", [["--size", "0"], ["--gpu", ""], ["--gpu", " "], ["--family", ""]]
)
def test_a_filter_that_says_nothing(
    words: str, empty: list[str], good: bytes, tmp_path: Path
) -> None:
    if "show" in words or (words == "export -" and empty[0] == "--family"):
        return
    (tmp_path / "a.db").write_bytes(good)
    assert typed(*words.split(), *empty, db=tmp_path / "a.db").exit_code == 2


@pytest.mark.parametrize("kind", ["report {}/r.html", "plot convergence {}/p.png"])
def test_reports_and_plots_refuse_it_too(kind: str, good: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(good)
    for empty in (["--size", "0"], ["--gpu", ""]):
        words = kind.format(tmp_path).split()
        assert typed(*words, *empty, db=tmp_path / "a.db").exit_code == 2


def test_the_library_refuses_it_too() -> None:
    for query in ({"size": "0"}, {"gpu": ""}, {"layout": ""}, {"dtype": " "}):
        with pytest.raises(UsageError):
            BestQuery(**query)


@pytest.mark.parametrize("value", [10**30, 2**63, "x", ""])
def test_a_recording_with_a_wrong_number(value: object, tmp_path: Path) -> None:
    shipped = data_folder("db/recordings") / "sgemm_simt_h200_1024_nn.json.gz"
    content = json.loads(gzip.decompress(shipped.read_bytes()))
    content["parameters"]["BM"][0] = value
    (tmp_path / "r.json").write_text(json.dumps(content))
    words = ["bench-search", "--recordings", str(tmp_path / "r.json"), "--seeds", "1"]
    result = typed(*words, "--strategies", "random", "--evaluations", "3")
    assert result.exit_code == 1
    assert "broken recording" in result.stderr


def test_a_condition_with_thousands_of_digits(tmp_path: Path) -> None:
    content = t1_content()
    content["ConfigurationSpace"]["Conditions"][0]["Expression"] = f"MWG < {'9' * 4400}"
    (tmp_path / "space.json").write_text(json.dumps(content))
    result = typed("space", str(tmp_path / "space.json"))
    assert result.exit_code == 0
    assert "does not fit 64 bits" in result.stdout + result.stderr


# Text appended to a good template, and part of the one line about it.
TEMPLATES = [
    ("{% for i in range(10**9) %}x{% endfor %}", "Range too big"),
    (
        "{% for i in R %}{% for j in R %}{% for k in R %}{% endfor %}{% endfor %}{% endfor %}",
        "round",
    ),
    (
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "rounds",
    ),
    (
        "{% set n = namespace(s='xx') %}{% for i in R %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "characters",
    ),
    (
        "{% set n = namespace(s='xx') %}{% for i in R %}{% set n.s = n.s * 2 %}{% endfor %}",
        "characters",
    ),
    ("{% for i in R %}{{ 'x' * 9000 }}{% endfor %}", "characters"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ("{{ " + "9" * 4400 + " }}", "4300 digits"),
    ("{{ 10 ** 4400 }}", "digits"),
    ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "recursion"),
    ("{% for i in R %}" * 30 + "{% endfor %}" * 30, "nested blocks"),
    ("{{ 1 // 0 }}", "division"),
    ("{{ 'a' | wordwrap(0) }}", "width"),
    ("//" + "x" * 2**20, "more than"),
    ("\udcff", "no text"),
]


@pytest.mark.parametrize(("text", "said"), TEMPLATES, ids=[said for _, said in TEMPLATES])
def test_a_template_that_does_not_end_or_is_none(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(YAML)
    whole = "{% set R = range(90000) %}" + TEMPLATE + text
    (tmp_path / "tiny.cu.jinja").write_bytes(whole.encode(errors="surrogateescape"))
    result = typed("render", "--family", str(tmp_path), "--gpu", "h100")
    assert result.exit_code == 1
    assert said in result.stderr
    assert "tiny.cu.jinja" in result.stderr
