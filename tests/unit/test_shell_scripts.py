"""Shell scripts: clean by shellcheck, and the cluster's batch script run with stand-ins."""

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
    done = subprocess.run(
        [str(tmp_path / "bash"), str(ROOT / ".ci" / "run")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "make test\n")
    assert "the browser tests are skipped" in done.stderr.splitlines()[-1]


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
