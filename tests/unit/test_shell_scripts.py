"""Shell scripts: clean by shellcheck, and the cluster's batch script run with stand-ins."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BATCH_SCRIPT = ROOT / "contrib" / "slurm" / "ladder.sbatch"
SCRIPTS = sorted({*ROOT.glob("*/*.sh"), *ROOT.glob("contrib/**/*.sbatch"), ROOT / ".ci" / "run"})


def test_the_scripts_are_found() -> None:
    assert {BATCH_SCRIPT, ROOT / "benchmarks" / "gpu_box.sh"} < set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    found = str(program) if program.exists() else shutil.which("shellcheck")
    if found is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([found, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# Writes down how it was called; fails where it is told to.
STAND_IN = """\
#!/bin/sh
echo "$(basename "$0") $*" >>"{log}"
case "$*" in
bench*--report*) echo tables; for file; do :; done; echo page >"$file"; echo rows >"$AUTOGEMM_DB" ;;
bench*) echo figures ;;
esac
case "$*" in {fails}) exit 3 ;; esac
"""


@pytest.fixture
def job(tmp_path: Path) -> "Job":
    return Job(tmp_path)


class Job:
    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.out = folder / "ladder-17"

    def __call__(
        self, fails: str = "never", **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("autogemm", "nvidia-smi"):
            (programs / name).write_text(STAND_IN.format(log=self.log, fails=fails))
            (programs / name).chmod(0o755)
        given = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "SLURM_SUBMIT_DIR": str(self.folder),
            "SLURM_JOB_ID": "17",
            "TMPDIR": str(self.folder / "tmp"),
        }
        (self.folder / "tmp").mkdir()
        return subprocess.run(
            [str(BATCH_SCRIPT)],
            env=given | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith("autogemm")]


@pytest.mark.parametrize("programs", ["make", "make id apt-get", "make id apt-get timeout"])
@pytest.mark.parametrize("code", [0, 2])
def test_ci_goes_on_without_a_browser(tmp_path: Path, programs: str, code: int) -> None:
    for name in ("bash", "dirname", "timeout"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    answers = {"make": f"exit {code}", "id": "echo 0", "apt-get": "exit 100", "timeout": "exit 124"}
    for name in programs.split():
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*"\n{answers[name]}\n')
        (tmp_path / name).chmod(0o755)
    # A copy: with the real one it would install into this environment.
    script = tmp_path / "checkout" / ".ci" / "run"
    script.parent.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", script)
    done = subprocess.run(
        [str(tmp_path / "bash"), str(script)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "make test\n")
    no_browser, no_torch = done.stderr.splitlines()[-2:]
    assert "the browser tests are skipped" in no_browser
    assert "no PyTorch here" in no_torch


# Stands in for Python on a GPU box: writes down how pytest was called, and ends as it is told to.
PYTHON = """\
#!/bin/sh
case "$*" in
"-c import xdist") exit {xdist} ;;
"-m pytest"*) ;;
*) exit 0 ;;
esac
echo "$*" >>"{log}"
case "$*" in
*"not alone"*) echo "FAILED tests/gpu/x.py::y"; echo "6 passed"; exit {together} ;;
*) echo "2 passed"; exit {alone} ;;
esac
"""


def gpu_tests(
    folder: Path, *words: str, together: int = 0, alone: int = 0, xdist: int = 0
) -> tuple[int, list[str], list[str]]:
    """The exit code of `gpu_box.sh test`, pytest's arguments and the lines printed."""
    log, python = folder / "log", folder / "python"
    python.write_text(PYTHON.format(log=log, together=together, alone=alone, xdist=xdist))
    python.chmod(0o755)
    done = subprocess.run(
        [str(ROOT / "benchmarks" / "gpu_box.sh"), "test", *words],
        env=os.environ | {"PYTHON": str(python), "AUTOGEMM_SITE": str(folder / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    calls = [line.removeprefix("-m pytest ") for line in log.read_text().splitlines()]
    return done.returncode, calls, done.stdout.splitlines()


def test_gpu_tests_that_need_the_gpu_for_themselves_come_last(tmp_path: Path) -> None:
    code, calls, said = gpu_tests(tmp_path, "-v", together=1)
    assert code == 1
    assert calls == [
        "-n 6 -p no:benchmark tests/gpu -v -m gpu and not alone",
        "tests/gpu -v -n 0 -m gpu and alone",
    ]
    assert said[-3:] == ["FAILED tests/gpu/x.py::y", "together: 6 passed", "alone: 2 passed"]


def test_gpu_tests_run_one_by_one_without_xdist(tmp_path: Path) -> None:
    code, calls, _ = gpu_tests(tmp_path, xdist=1)
    assert (code, calls) == (0, ["tests/gpu -m gpu and not alone", "tests/gpu -m gpu and alone"])


@pytest.mark.parametrize(
    ("words", "added"),
    [
        ("tests/gpu/x.py", ""),
        ("-k y tests/gpu/x.py::z", ""),
        ("--deselect tests/gpu/x.py", "tests/gpu "),
        ("--ignore=tests/gpu/x.py", "tests/gpu "),
        ("--deselect tests/gpu/x.py tests/gpu/y.py", ""),
    ],
)
def test_gpu_tests_are_those_of_the_files_named(tmp_path: Path, words: str, added: str) -> None:
    _, calls, _ = gpu_tests(tmp_path, *words.split())
    assert calls[1] == f"{added}{words} -n 0 -m gpu and alone"


@pytest.mark.parametrize(
    ("together", "alone", "code"),
    [(5, 0, 0), (0, 5, 0), (5, 5, 5), (1, 5, 1), (5, 1, 1), (0, 1, 1), (1, 1, 1), (0, 2, 2)],
)
def test_gpu_tests_fail_if_either_kind_does(
    tmp_path: Path, together: int, alone: int, code: int
) -> None:
    assert gpu_tests(tmp_path, together=together, alone=alone)[0] == code


def test_a_wrong_command_is_said_once(tmp_path: Path) -> None:
    code, calls, _ = gpu_tests(tmp_path, "--nonsense", together=4)
    assert (code, len(calls)) == (4, 1)


def test_a_job_leaves_report_tables_figures_and_database(job: Job) -> None:
    done = job(AUTOGEMM_SIZES="64,128", AUTOGEMM_BUDGET="5s")
    assert done.returncode == 0, done.stderr
    assert job.calls[:3] == [
        "autogemm gpus --measure",
        "autogemm tune --require-gpu --size 64 --budget 5s --quiet",
        "autogemm tune --require-gpu --size 128 --budget 5s --quiet",
    ]
    assert job.calls[3].startswith("autogemm bench --preset ladder --sizes 64,128 --report ")
    assert job.calls[4] == "autogemm bench --show last --csv"
    kept = {path.name: path.read_text() for path in job.out.iterdir()}
    assert kept == {
        "ladder.html": "page\n",
        "ladder.txt": "tables\n",
        "ladder.csv": "figures\n",
        "ladder.db": "rows\n",
    }
    assert list((job.folder / "tmp").iterdir()) == []


def test_a_job_that_fails_keeps_what_was_measured(job: Job) -> None:
    done = job(fails="bench*", AUTOGEMM_BUDGET="0")
    assert done.returncode != 0
    assert "autogemm tune" not in "".join(job.calls)
    assert (job.out / "ladder.db").read_text() == "rows\n"


def test_a_job_sources_the_environment_and_says_when_it_is_not_there(job: Job) -> None:
    activate = job.folder / "activate"
    activate.write_text('echo "active $UNSET_ANYWHERE"\n')
    done = job(AUTOGEMM_ACTIVATE=str(activate), AUTOGEMM_BUDGET="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("active")


def test_without_autogemm_a_job_says_so(job: Job) -> None:
    done = job(PATH="/usr/bin:/bin")
    assert done.returncode == 1
    assert "set AUTOGEMM_ACTIVATE" in done.stderr


# In place of autogemm: a row for each bench, and the words of every call.
LADDER_STAND_IN = """\
#!/bin/sh
echo "$*" >>"{log}"
case "$*" in
bench*{breaks}) exit 4 ;;
bench*--sizes*) echo '[{{"size": "'"$8"'"}}]' ;;
tune*) exit 3 ;;
*) echo "shown" ;;
esac
"""


@pytest.mark.parametrize(
    ("breaks", "sizes"),
    [
        ("nothing", ["128,256,512", "1024,2048", "4096,4096x256x1024", "8192"]),
        ("2048", ["128,256,512", "1024", "4096,4096x256x1024", "8192"]),
    ],
)
def test_the_whole_ladder_is_one_list_of_rows(
    tmp_path: Path, breaks: str, sizes: list[str]
) -> None:
    """Small sizes first; winners that are missing are no reason to stop, nor a size that breaks."""
    log, programs, out = tmp_path / "log", tmp_path / "bin", tmp_path / "out"
    programs.mkdir()
    (programs / "autogemm").write_text(LADDER_STAND_IN.format(log=log, breaks=breaks))
    (programs / "autogemm").chmod(0o755)
    (programs / "python3").symlink_to(sys.executable)
    done = subprocess.run(
        [str(ROOT / "benchmarks" / "ladder.sh"), "abc123", str(out)],
        env={"PATH": f"{programs}:/usr/bin:/bin", "LARGE": "rungs"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((out / "ladder.json").read_text())
    assert [row["size"] for row in rows] == sizes
    calls = log.read_text().splitlines()
    assert calls[0].startswith("tune --preset ladder --require-gpu")
    (large,) = (call for call in calls if call.endswith("--sizes 8192"))
    assert "--kernels rungs " in large
    assert (out / "ladder.txt").read_text().startswith("commit abc123; winners: autogemm tune")
    assert (out / "ceilings.json").read_text() == "shown\n"
