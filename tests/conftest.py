"""Tests meet nothing of who runs them: no home folder, no database, no terminal. ``gpu`` tests are
skipped without a GPU, and say why; ``--update-golden`` rewrites golden files, ``--fuzz COUNT``
feeds readers more broken files, ``--thorough`` runs all of the cases of which a sample is the rule.
"""

import gc
import os
import signal
from collections.abc import Iterator

import pytest

# Variables that change how Rich, click and Python's own tracebacks write to a terminal.
OF_THE_TERMINAL = (
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "LINES",
    "NO_COLOR",
    "PYTHON_COLORS",
    "TERM",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)

# Threads of NumPy and PyTorch wait by spinning, which took a tenth of the suite's processor time;
# tests run in several processes, each of which needs one thread.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Collecting tests makes a million objects and drops few of them: to look through them all again and
# again took a fifth of its time.
gc.disable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/*.cu")
    parser.addoption("--thorough", action="store_true", help="all cases, not a sample of each kind")
    parser.addoption("--fuzz", type=int, default=0, help="broken files for each reader")


@pytest.fixture(scope="session", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The same for everybody, and in child processes too.

    All processes of a test run keep compiled files in one folder.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        for name in OF_THE_TERMINAL:
            patch.delenv(name, raising=False)
        # Python keeps what it compiled: tests start it some thousand times.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("AUTOGEMM_CACHE", str(folder / "cache"))
        # A test that wants the catalogue names it: what ships changes.
        patch.setenv("AUTOGEMM_CATALOGUE", "none")
        # A test that wants a database makes its own.
        patch.setenv("AUTOGEMM_DB", str(folder / "nobody's" / "file" / "tune.db"))
        (folder / "nobody's").mkdir(exist_ok=True)
        (folder / "nobody's" / "file").touch()
        # A shell starts what it runs in the background deaf to Ctrl-C, and children inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


def pytest_report_header(config: pytest.Config) -> str:
    return (
        "" if config.getoption("--thorough") else "a sample of the many-case tests: not --thorough"
    )


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # A case that somebody names is run.
    if not config.getoption("--thorough") and not any("::" in one for one in config.args):
        left_out = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    from autogemm.targets.cuda import why_no_device

    reason = why_no_device()
    if reason:
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {reason}"))
