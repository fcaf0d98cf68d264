"""Tests of a mutant: those that run its line, the quickest first, until one fails.

Each worker has a copy of the tree and forks a child for each mutant once the libraries of others
are imported. One run of each test file under coverage says which test runs which line, those of
the package's own child processes among them (`mutate_child/`): they read the tree as well.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from mutate_planting import Chosen, Mutant

CHILDREN = Path(__file__).with_name("mutate_child")
COPIED = ("autogemm", "contrib", "db", "search_spaces", "templates", "tests")
# A line that is run while a file is imported, or a fixture of several tests is made.
SHARED = "*"
IMPORT_S = 60.0
FIRST_FILES, FIRST_S = 2, 2.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Facts of one test file, for all modules: seconds of each test, tests of each line."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]

    def running(self, mutant: Mutant) -> set[str]:
        """The tests that run a line of the mutant; all that load its module, for what loads it."""
        lines = self.lines.get(f"autogemm/{mutant.module}.py", {})
        span = range(mutant.first_line, mutant.last_line + 1)
        names = {name for line in span for name in lines.get(str(line), [])}
        if SHARED in names or (lines and mutant.at_import):
            return set(self.seconds)
        return names


def copied_tree(root: Path, folder: Path) -> Path:
    """A copy of what the tests read."""
    for name in COPIED:
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in root.iterdir():
        if path.is_file():
            shutil.copy(path, folder / path.name)
    return folder


def preload() -> None:
    """Import what takes long, and nothing of this project: children inherit it."""
    # One thread for each child, before NumPy is imported: two cores are two mutants.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    import alembic.command
    import coverage
    import hypothesis
    import optuna
    import pydantic
    import rich.console
    import scipy.linalg
    import scipy.optimize
    import scipy.stats
    import sqlalchemy.orm
    import yaml

    assert alembic and coverage and hypothesis and optuna and pydantic and rich
    assert scipy and sqlalchemy and yaml


def in_child(tree: Path, log: Path, most_seconds: float, act: Callable[[], int]) -> int | None:
    """The exit code of ``act`` in a process of its own there; none where it took too long."""
    if (pid := os.fork()) == 0:
        code = 70
        try:
            os.setsid()
            _settle(tree, log)
            code = act()
        except BaseException as error:
            print(repr(error), flush=True)
        finally:
            sys.stdout.flush()
            os._exit(code)
    deadline = time.monotonic() + most_seconds
    status = None
    while status is None and time.monotonic() < deadline:
        done, value = os.waitpid(pid, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(value)
        else:
            time.sleep(0.02)
    # Processes that the tests left are ended too; their group is ours.
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if status is None:
        os.waitpid(pid, 0)
    return status


def _settle(tree: Path, log: Path) -> None:
    """Work in that tree, quietly; processes that are started do too."""
    os.chdir(tree)
    output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    paths = [str(tree), str(tree / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    sys.path[:0] = paths


def _pytest(tree: Path, arguments: list[str], plugin: object) -> int:
    temporary = f"--basetemp={tree / 'temporary'}"
    quiet = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", temporary, "-m", "not gpu"]
    # Libraries are imported before pytest could rewrite them.
    quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*quiet, *arguments], plugins=[plugin] if plugin else []))


class Ordered:
    """Runs these tests in this order."""

    def __init__(self, names: list[str]) -> None:
        self.places = {name: place for place, name in enumerate(names)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.places),
            key=lambda item: self.places[item.nodeid],
        )


@dataclass(frozen=True, slots=True)
class Tests:
    """Test files, the seconds that they may take, and what chooses among their tests."""

    files: list[str]
    most_seconds: float
    plugin: Ordered | None = None


def is_killed(tree: Path, mutant: Mutant, tests: dict[str, float]) -> bool:
    """Whether one of the tests fails or does not end with it planted."""
    path = tree / "autogemm" / f"{mutant.module}.py"
    for names in stages(tests):
        files = sorted({name.split("::")[0] for name in names})
        most_seconds = IMPORT_S + 6 * sum(tests[name] for name in names)
        if _fails(tree, path, mutant.source, Tests(files, most_seconds, Ordered(names))):
            return True
    return False


def stages(tests: dict[str, float]) -> list[list[str]]:
    """The quickest of one or two files, then all others: most mutants die soon, and files that are
    not imported cost nothing.
    """
    names = sorted(tests, key=lambda name: tests[name])
    files = list(dict.fromkeys(name.split("::")[0] for name in names))[:FIRST_FILES]
    first: list[str] = []
    for name in names:
        if name.split("::")[0] in files and sum(tests[one] for one in first) < FIRST_S:
            first.append(name)
    rest = [name for name in names if name not in first]
    return [first, rest] if rest else [first]


def is_seen(tree: Path, bug: Chosen, most_seconds: float = 900.0) -> bool:
    """Whether one of the tests that are named beside a bug fails with it."""
    tests = Tests([f"tests/{name}" for name in bug.tests], most_seconds)
    return _fails(tree, tree / bug.file, bug.planted(tree), tests)


def _fails(tree: Path, path: Path, source: str, tests: Tests) -> bool:
    before = path.read_text()
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()

    def act() -> int:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        return _pytest(tree, ["-x", *tests.files], tests.plugin)

    path.write_text(source)
    try:
        code = in_child(tree, tree / "mutant.log", tests.most_seconds, act)
    finally:
        path.write_text(before)
        shutil.rmtree(tree / "temporary", ignore_errors=True)
    return code != 0


class Recorder:
    """Notes which test runs which line of the package, and for how long it runs."""

    def __init__(self, tree: Path, folder: Path) -> None:
        import coverage

        self.tree, self.folder = tree, folder
        (folder / "current").write_text(SHARED)
        os.environ["AUTOGEMM_MUTATE_CHILDREN"] = str(folder)
        os.environ["AUTOGEMM_MUTATE_CHILDREN_PACKAGE"] = str(tree / "autogemm")
        sys.path.insert(0, str(CHILDREN))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(CHILDREN), os.environ["PYTHONPATH"]])
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.context = SHARED
        self.coverage = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{tree}/autogemm/*"], messages=False
        )
        self.coverage.start()
        self.coverage.switch_context(SHARED)

    def enter(self, context: str) -> str:
        """Note lines under this name from now on; return the name before."""
        before, self.context = self.context, context
        self.coverage.switch_context(context)
        (self.folder / "current").write_text(context)
        return before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began = time.monotonic()
        self.enter(item.nodeid)
        try:
            return (yield)
        finally:
            self.enter(SHARED)
            if item.nodeid not in self.failed:
                self.seconds[item.nodeid] = round(time.monotonic() - began, 3)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out tests that fail here with no mutant: of imports, for example."""
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Generator[None, object, object]:
        before = self.enter(self.context if fixturedef.scope == "function" else SHARED)
        try:
            return (yield)
        finally:
            self.enter(before)

    def measured(self) -> Measured:
        import coverage

        self.coverage.stop()
        data = self.coverage.get_data()
        for path in self.folder.glob("child.*"):
            of_child = coverage.CoverageData(str(path))
            # One that was killed while it wrote has told nothing.
            with suppress(coverage.CoverageException):
                of_child.read()
                data.update(of_child)
        lines = {
            str(Path(file).relative_to(self.tree)): {
                str(line): names for line, names in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        return Measured(self.seconds, lines)


def measured(tree: Path, test: str, kept: Path, digest: str) -> Measured:
    """Run a test file under coverage, if it is not known what it runs."""
    path = kept / f"{test.replace('/', '.')}.json"
    if path.exists():
        value = json.loads(path.read_text())
        if value.pop("digest") == digest:
            return Measured(**value)

    def act() -> int:
        with tempfile.TemporaryDirectory() as folder:
            recorder = Recorder(tree, Path(folder))
            code = _pytest(tree, [test], recorder)
            found = recorder.measured()
        path.write_text(json.dumps({"digest": digest, **asdict(found)}))
        return code

    log = tree / "measured.log"
    code = in_child(tree, log, 600, act)
    shutil.rmtree(tree / "temporary", ignore_errors=True)
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        path.unlink(missing_ok=True)
        raise SystemExit(f"{test} does not run with no mutant planted\n{log.read_text()[-3000:]}")
    if code:
        print(f"{test}: left out what fails with no mutant planted", flush=True)
    return measured(tree, test, kept, digest)


def digest_of(*texts: str | bytes) -> str:
    """A name of texts by what they say."""
    sha = hashlib.sha256()
    for text in texts:
        sha.update(text.encode() if isinstance(text, str) else text)
        sha.update(b"\0")
    return sha.hexdigest()[:20]
