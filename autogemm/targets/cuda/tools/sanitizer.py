"""A candidate's own machine code under NVIDIA's compute-sanitizer, on a small problem."""

import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Check, Verdict
from autogemm.support.child_process import child_environment
from autogemm.targets.cuda.tools.toolkit import find_program, program_version

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# Exit code by which a tool says that it found something.
FOUND = 86

_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
_RACECHECK_ERRORS = re.compile(r"RACECHECK SUMMARY:.*\((\d+) errors?")
# The other side of a race is in a line of its own.
_FINDING = re.compile(
    r"^=+ +(?!COMPUTE-SANITIZER|RACECHECK SUMMARY|ERROR SUMMARY)(\S.*)(?:\n=+ +(and \S.*))?$", re.M
)


@dataclass(frozen=True, slots=True)
class Job:
    """The job that `autogemm.targets.cuda.worker.sanitized` runs, as a pickled file."""

    candidate: Candidate
    problem: Problem
    device_index: int

    @property
    def writes_c_by_tma(self) -> bool:
        """Whether C may be written by TMA, whose stores initcheck does not see."""
        return any(one.matrix == "C" for one in self.candidate.plan.tensor_maps)


def sanitize(job: Job, deadline_s: float) -> tuple[Check, ...]:
    """One check for each tool; they run side by side, each within the deadline.

    Where compute-sanitizer is not installed, or cannot watch programs here, the checks say so.
    """
    tool = find_sanitizer()
    if tool is None:
        return tuple(
            Check(name, Verdict.NOT_DONE, "compute-sanitizer is not installed") for name in TOOLS
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job"
        path.write_bytes(pickle.dumps(job))
        running = [_Running(tool, name, path) for name in TOOLS]
        try:
            end = time.monotonic() + deadline_s
            return tuple(one.check(end, job) for one in running)
        finally:
            # Also on Ctrl-C.
            for one in running:
                one.kill()


def find_sanitizer() -> str | None:
    """compute-sanitizer on PATH or in a CUDA toolkit."""
    return find_program("compute-sanitizer")


class _Running:
    """One tool at work, with what it prints in a file beside the job."""

    def __init__(self, tool: str, name: str, job: Path) -> None:
        self._tool, self._name = tool, name
        self._output = job.with_name(name)
        self._begin = time.monotonic()
        command = [tool, "--tool", name, "--error-exitcode", str(FOUND), "--print-limit", "3"]
        command += [sys.executable, "-P", "-m", "autogemm.targets.cuda.worker.sanitized", str(job)]
        self._process: subprocess.Popen[bytes] | None = None
        self._error = ""
        try:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=child_environment(),
                    start_new_session=True,
                )
        except OSError as error:
            self._error = f"{tool} cannot be run: {error.strerror}"

    def check(self, end: float, job: Job) -> Check:
        """Wait for it, until ``end`` (of `time.monotonic`), and judge."""
        if self._process is None:
            verdict, what = Verdict.NOT_DONE, self._error
        else:
            try:
                exit_code = self._process.wait(max(0.0, end - time.monotonic()))
                output = self._output.read_text(errors="replace")
                verdict, what = judged(exit_code, output, job.problem)
                if self._name == "initcheck" and job.writes_c_by_tma:
                    what += "; it does not see TMA's stores, so C held NaN before"
            except subprocess.TimeoutExpired:
                verdict, what = Verdict.NOT_DONE, "it did not end in time"
        seconds = time.monotonic() - self._begin
        return Check(self._name, verdict, what, program_version(self._tool), seconds)

    def kill(self) -> None:
        """End it and the program that it watches, if they have not ended."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def judged(exit_code: int, output: str, problem: Problem) -> tuple[Verdict, str]:
    """The verdict, and what was looked at, found, or in the way.

    Without the tool's own summary nothing is known of the kernel, whatever the exit code.
    """
    num_found = _num_found(output)
    if num_found is None:
        lines = output.strip().splitlines() or [f"exit code {exit_code}"]
        last = lines[-1].strip("= ")
        return Verdict.NOT_DONE, f"compute-sanitizer cannot watch programs here: {last}"
    finding = _FINDING.search(output)
    if num_found:
        sides = [side.strip() for side in finding.groups("")] if finding else ["no details"]
        first = " ".join(filter(None, sides))
        return Verdict.FAILED, f"{num_found} found on {problem.label}, first: {first}"
    if wrong := re.search(r"^wrong: (.*)$", output, re.M):
        return Verdict.FAILED, f"wrong result on {problem.label}: {wrong[1]}"
    if not re.search(r"^right$", output, re.M):
        own = [line for line in output.splitlines() if not line.startswith("=") and line.strip()]
        last = own[-1].strip() if own else f"exit code {exit_code}"
        return Verdict.NOT_DONE, f"the kernel did not run to its end: {last}"
    return Verdict.PASSED, f"nothing found on {problem.label}"


def _num_found(output: str) -> int | None:
    """Return the number in the tool's own summary; None without one."""
    summary = _SUMMARY.search(output)
    if summary is None:
        return None
    errors = _RACECHECK_ERRORS.search(output)
    return int(errors[1]) if errors else int(summary[1])
