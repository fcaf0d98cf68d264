"""Measures the suites that README and docs quote, in parts that go on where they stopped.

    benchmarks/gpu_box.sh run python3 benchmarks/measure.py --commit COMMIT --seconds 580 --out OUT
    ... measure.py --parts tests,f32-nn,unseen --seconds 580 --out OUT
    ... measure.py --list

Each part runs in the time that is left, writes what it has, and is not begun again once it is done
for the files as they are now; the same command with the same OUT goes on, also on another day and
machine of the same kind if the files of OUT were carried there. Files of OUT have the names that
they have in benchmarks/results, where the tests compare them with what the documents quote.
"""

import hashlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from suite_shapes import LAYER_EPILOGUES

from autogemm.model.dtypes import DType
from autogemm.space import load_family
from autogemm.support.files import write_atomically
from autogemm.targets.recorded import RecordedTarget, list_recordings

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / "benchmarks"
# Exit code of a part whose time ended: the same command goes on.
GOES_ON = 3
# pytest's exit code for it.
NOTHING_RAN = 5
# After SIGINT a part has so long to write what it has.
GRACE_S = 15.0
# With less time than this no part is begun.
LEAST_S = 20.0
# Files that results depend on: a part that was measured with other files is measured again.
CODE = ("autogemm", "templates", "search_spaces", "tests/gpu")


@dataclass(frozen=True)
class Here:
    """One call: where results go, what was given, and what GPU there is."""

    out: Path
    commit: str
    gpu: str
    gpu_label: str
    code: str
    python: str = sys.executable

    @property
    def heading(self) -> str:
        """The first line of a text."""
        return f"{self.gpu}, {datetime.now(UTC):%Y-%m-%d}, commit {self.commit}"


@dataclass(frozen=True)
class Part:
    """Something to measure. ``run`` gets the seconds left; its exit code is that of a program."""

    name: str
    about_s: int
    run: Callable[[Here, float], int]


def started(here: Here, command: Sequence[str], seconds: float, log: Path) -> int:
    """Run a program in its time, its output in a log. Told by SIGINT it ends with what it has."""
    with log.open("ab") as output:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        child = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return child.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
            return GOES_ON
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()


def suite(*arguments: str) -> Callable[[Here, float], int]:
    """Return a part that is a call of suite.py, which keeps to its limit by itself."""

    def run(here: Here, seconds: float) -> int:
        command = [here.python, str(HERE / "suite.py"), "--commit", here.commit, *arguments]
        command += ["--out", str(here.out), "--limit", str(int(seconds - GRACE_S))]
        return started(here, command, seconds, here.out / "measure.log")

    return run


def gpu_tests(here: Here, seconds: float) -> int:
    """The GPU tests, a file at a time; a file that passed with this code is not run again."""
    ends_at = time.monotonic() + seconds
    path = here.out / f"gpu_tests_{here.gpu_label}.json"
    ran: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    files = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
    ran = {name: one for name, one in ran.items() if one["code"] == here.code}
    code = 0
    for file in files:
        name = file.relative_to(ROOT).as_posix()
        if ran.get(name, {}).get("exit") == 0:
            continue
        left = ends_at - time.monotonic()
        if left < LEAST_S:
            code = GOES_ON
            break
        log = here.out / f"{file.stem}.log"
        log.unlink(missing_ok=True)
        command = [here.python, "-m", "pytest", "-m", "gpu", "--durations=5", name]
        ended = started(here, command, left, log)
        found = counted(log.read_text(errors="replace"))
        if ended == 0 and not found["passed"]:
            # All were skipped, as where there is no GPU.
            ended = NOTHING_RAN
        ran[name] = found | {
            "exit": ended,
            "code": here.code,
            "commit": here.commit,
        }
        write_atomically(path, (json.dumps(ran, indent=1) + "\n").encode())
        write_atomically(path.with_suffix(".txt"), tests_table(here, ran, files).encode())
        if ended == GOES_ON:
            code = GOES_ON
            break
        code = code or ended
    return code


def counted(log: str) -> dict[str, Any]:
    """The numbers of pytest's last line, and which tests failed."""
    last = next((line for line in reversed(log.splitlines()) if " in " in line), "")
    numbers = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last)}
    seconds = re.search(r"in ([\d.]+)s", last)
    return {
        **{word: numbers.get(word, 0) for word in ("passed", "failed", "skipped", "errors")},
        "seconds": float(seconds[1]) if seconds else 0.0,
        "failures": re.findall(r"^(?:FAILED|ERROR) (\S+)", log, re.MULTILINE),
    }


def tests_table(here: Here, ran: Mapping[str, Any], files: Sequence[Path]) -> str:
    """A line for each file, and the sums."""
    lines = [f"{here.heading}: all GPU tests", "command: benchmarks/measure.py --parts tests", ""]
    total = {"passed": 0, "failed": 0, "skipped": 0, "errors": 0, "seconds": 0.0}
    for name, one in sorted(ran.items()):
        what = ", ".join(f"{one[word]} {word}" for word in total if one[word] and word != "seconds")
        ended = {GOES_ON: " STOPPED BY THE TIME", NOTHING_RAN: " NONE PASSED"}.get(one["exit"], "")
        lines.append(f"{one['seconds']:7.1f} s  {name}: {what or 'nothing'}{ended}")
        lines += [f"           {test}" for test in one["failures"]]
        total = {word: total[word] + one[word] for word in total}
    missing = [file.name for file in files if f"tests/gpu/{file.name}" not in ran]
    lines += ["", f"{total['passed']} passed, {total['failed'] + total['errors']} failed, "]
    lines[-1] += f"{total['skipped']} skipped in {total['seconds']:.0f} s"
    lines += [f"not run yet: {' '.join(missing)}"] if missing else []
    return "\n".join([*lines, ""])


def main_job(here: Here, seconds: float) -> int:
    """Tune, export, nvcc, run, sanitize, kill and resume, as a person does it."""
    folder = here.out / "main_job"
    command = ["env", "BUDGET=15s", "bash", str(HERE / "main_job.sh"), here.commit, str(folder)]
    ended = started(here, command, seconds, here.out / "measure.log")
    printed = folder / "main_job.txt"
    if printed.exists():
        write_atomically(here.out / f"main_job_{here.gpu_label}.txt", printed.read_bytes())
    return ended


def recordings(here: Here, seconds: float) -> int:
    """Each recording that ships, made anew on this GPU with the parameters that it covers."""
    ends_at = time.monotonic() + seconds
    folder = here.out / "recordings"
    folder.mkdir(exist_ok=True)
    for info in list_recordings():
        target = RecordedTarget(info.path)
        family = load_family(info.family)
        problem = target.recording.problem
        dtype = "" if problem.dtype is DType.F32 else f"_{problem.dtype}"
        of_problem = f"{problem.size_label}_{problem.layout}{dtype}"
        name = f"{family.name}_{here.gpu_label}_{of_problem}.json.gz"
        if (folder / name).exists():
            continue
        left = ends_at - time.monotonic()
        if left < LEAST_S:
            return GOES_ON
        command = [here.python, str(HERE / "record.py"), "--size", problem.size_label]
        command += ["--layout", problem.layout.value, "--family", family.name]
        command += ["--dtype", str(problem.dtype)]
        for parameter, values in target.restriction(family).items():
            command += ["--fix", f"{parameter}={','.join(map(str, values))}"]
        command += ["--commit", here.commit, "--rounds", "30", "--out", str(folder / name)]
        command += ["--limit-seconds", str(int(left - GRACE_S))]
        ended = started(here, command, left, here.out / "measure.log")
        if ended:
            # It says so and goes on from its state where it ended for lack of time.
            return GOES_ON if ends_at - time.monotonic() < LEAST_S else ended
    return 0


def kernel_tuner(here: Here, seconds: float) -> int:
    """Kernel Tuner and autogemm: as each comes, and both with one core."""
    out = here.out / f"kernel_tuner_{here.gpu_label}.txt"
    text = f"{here.heading}\n"
    for arguments in ([], ["--one-core"]):
        log = here.out / "kernel_tuner.log"
        log.unlink(missing_ok=True)
        command = [here.python, str(HERE / "kernel_tuner_on_gpu.py"), *arguments]
        ended = started(here, command, seconds / 2, log)
        text += log.read_text(errors="replace").replace(f"{here.python} {HERE.parent}/", "")
        write_atomically(out, text.encode())
        if ended:
            return ended
    return 0


SUITE = ("--trials", "100", "--budget", "3s", "--max-error", "cublas")
TENSOR = ("--trials", "80", "--budget", "3s", "--rounds", "30")
# Winner and baseline each alone, hot, at the power limit.
SUSTAINED = ("--sustained", "3s")
# Hopper's family alone, in the layout of linear layers.
HOPPER = ("--layouts", "nt", "--family", "gemm_wgmma")
FEW_ROWS = (
    "--layouts",
    "nt",
    "--l2",
    "rotate",
    "--family",
    "gemm_skinny",
    "--family",
    "gemm_wgmma",
)
SCALED = ("--suite", "block-scales-decode", "--dtype", "e4m3")
BOTH, ALL = ("--layouts", "nn,nt"), ("--layouts", "nn,nt,tn,tt")
SHORT = ("--rounds", "12", "--finalists", "4")
SQUARES = "1024,2048,4096,8192"
LAYERS = ("--dtype", "bf16", *HOPPER, "--trials", "150", "--budget", "5s", "--rounds", "12")
PARTS = (
    Part("f32-nn", 200, suite(*SUITE)),
    Part("unseen", 170, suite(*SUITE, "--unseen", "20", "--seed", "1")),
    Part("tests", 450, gpu_tests),
    Part("f32-layouts", 600, suite(*SUITE, "--layouts", "nt,tn,tt")),
    Part("emulated", 60, suite("--emulation", "--trials", "60")),
    Part("sustained-emulated", 90, suite("--emulation", "--shapes", "4096,8192", *SUSTAINED)),
    Part("sustained-f32", 90, suite(*SUITE, "--shapes", "4096,8192", *SUSTAINED)),
    Part(
        "sustained-bf16", 90, suite("--dtype", "bf16", *TENSOR, "--shapes", "4096,8192", *SUSTAINED)
    ),
    Part("bf16", 70, suite("--dtype", "bf16", *TENSOR)),
    Part("f16", 70, suite("--dtype", "f16", *TENSOR)),
    Part("tf32", 70, suite("--dtype", "tf32", *TENSOR)),
    Part("without-seeds", 290, suite(*SUITE, "--without-seeds")),
    Part("rotated", 350, suite(*SUITE, "--l2", "rotate")),
    Part("any-size", 170, suite("--suite", "any-size", *TENSOR, "--dtype", "bf16", *BOTH)),
    Part("tf32-layouts", 130, suite("--suite", "layouts", *TENSOR, "--dtype", "tf32", *ALL)),
    Part("cube", 600, suite("--suite", "cube", "--dtype", "f16", "--budget", "2s", *SHORT)),
    Part("layers", 1200, suite("--suite", "layers", "--dtype", "bf16", *FEW_ROWS[:4], *SHORT)),
    Part("batched-f32", 110, suite("--suite", "batched", "--budget", "4s", *SHORT)),
    Part("batched-bf16", 80, suite("--suite", "batched", "--dtype", "bf16", *SHORT)),
    Part("grouped", 180, suite("--suite", "grouped", "--dtype", "bf16", *HOPPER, *SHORT)),
    Part("moe-decode", 130, suite("--suite", "moe-decode", "--dtype", "bf16", *FEW_ROWS)),
    Part("decode", 140, suite("--suite", "decode", "--dtype", "e4m3", *FEW_ROWS)),
    Part("decode-scaled", 120, suite(*SCALED, *FEW_ROWS)),
    Part("e4m3", 60, suite("--dtype", "e4m3", *HOPPER)),
    Part("e4m3-scaled", 60, suite("--dtype", "e4m3", *HOPPER, "--epilogue", "acc * sa * sb")),
    Part("i8", 60, suite("--dtype", "i8", *HOPPER)),
    *(
        Part(f"layers-{name}", 125, suite("--suite", name, *LAYERS, "--finalists", "8"))
        for name in LAYER_EPILOGUES
    ),
    Part("f32-epilogue", 70, suite("--shapes", SQUARES, "--epilogue", "relu(acc + bias[n])")),
    Part("main-job", 350, main_job),
    Part("recordings", 150, recordings),
    Part("kernel-tuner", 180, kernel_tuner),
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--parts", default="", help="By commas, in this order. Default: all.")
@click.option("--list", "only_list", is_flag=True, help="Print the parts and about how long each.")
@click.option("--seconds", default=580.0, show_default=True, help="Ends after so many seconds.")
@click.option("--commit", default="unknown", help="Which commit this is, for the record.")
@click.option("--again", is_flag=True, help="Also parts that are done.")
@click.option("--out", default="", help="Folder of results.")
def main(parts: str, only_list: bool, seconds: float, out: str, **options: Any) -> None:
    """Measure parts until all are done or the time is up; exit code 3 if some are left."""
    if only_list:
        for part in PARTS:
            click.echo(f"{part.name:18} about {part.about_s:4} s")
        return
    chosen = chosen_parts(parts)
    if not out:
        raise click.UsageError("--out: a folder for the results")
    ends_at = time.monotonic() + seconds
    folder = Path(out).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    name = gpu_name()
    here = Here(folder, options["commit"], name, label_of(name), code_sha256())
    sys.exit(measure(here, chosen, ends_at, options["again"]))


def chosen_parts(names: str) -> list[Part]:
    """The parts named. Raises UsageError for a name that is none."""
    by_name = {part.name: part for part in PARTS}
    wanted = names.split(",") if names else list(by_name)
    if unknown := [one for one in wanted if one not in by_name]:
        raise click.UsageError(f"no part {unknown[0]!r}; there are {', '.join(by_name)}")
    return [by_name[one] for one in wanted]


def measure(here: Here, parts: Sequence[Part], ends_at: float, again: bool = False) -> int:
    """Run the parts that are not done; what became of each stands in measure_GPU.json."""
    path = here.out / f"measure_{here.gpu_label}.json"
    state: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for part in parts:
        before = state.get(part.name, {})
        if not again and before.get("exit") == 0 and before["code"] == here.code:
            click.echo(f"{part.name:18} done before")
            continue
        left = ends_at - time.monotonic()
        if left < LEAST_S:
            click.echo(f"{part.name:18} not begun: the time is up")
            return GOES_ON
        began = time.monotonic()
        ended = part.run(here, left)
        seconds = time.monotonic() - began
        click.echo(f"{part.name:18} exit {ended}, {seconds:.0f} s")
        state[part.name] = {
            "exit": ended,
            "seconds": round(
                seconds + before.get("seconds", 0.0) * (before.get("exit") == GOES_ON)
            ),
            "code": here.code,
            "commit": here.commit,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "gpu": here.gpu,
        }
        write_atomically(path, (json.dumps(state, indent=1) + "\n").encode())
    failed = [part.name for part in parts if state[part.name]["exit"] not in (0, GOES_ON)]
    goes_on = any(state[part.name]["exit"] == GOES_ON for part in parts)
    click.echo(f"failed: {', '.join(failed) or 'none'}")
    return GOES_ON if goes_on else int(bool(failed))


def gpu_name() -> str:
    """Name and driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return found.splitlines()[0].strip()


def label_of(name: str) -> str:
    """The GPU's name as files have it: h200 of NVIDIA H200."""
    found = re.search(r"\b[A-Z]+\d+\w*\b", name)
    return found[0].lower() if found else "gpu"


def code_sha256() -> str:
    """A hash of the files that results depend on, shortened."""
    whole = hashlib.sha256()
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                whole.update(path.relative_to(ROOT).as_posix().encode())
                whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


if __name__ == "__main__":
    main()
