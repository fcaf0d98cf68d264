"""A candidate under NVIDIA's Nsight Compute: its raw page of counters, as CSV."""

import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

from autogemm.support.child_process import child_environment
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.tools.sanitizer import Job
from autogemm.targets.cuda.tools.toolkit import find_program, program_version

# Launches before the one that is profiled: code is loaded, and L2 as in a warm run.
NUM_WARM_LAUNCHES = 2

SECTIONS = (
    *("SpeedOfLight", "Occupancy", "LaunchStats", "SchedulerStats", "WarpStateStats"),
    *("ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis"),
)
# Accesses by cores are counted separately for load and store instructions.
METRICS = (
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sector_hit_rate.pct",
)

NO_PERMISSION = (
    "Nsight Compute may not read the GPU's counters here (ERR_NVGPUCTRPERM): run as root, or let "
    "the administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0"
)


def find_profiler() -> str | None:
    """Nsight Compute's ncu on PATH, in a CUDA toolkit or in a folder of its own."""
    return find_program("ncu")


def profiler_version() -> str:
    """``ncu 2025.3.1.0``. Raises DeviceError where there is none."""
    return program_version(_profiler())


def profile_csv(job: Job, deadline_s: float) -> str:
    """The raw page of one GEMM, every launch of the plan a row; numbers in base units.

    Raises DeviceError where Nsight Compute is missing, may not count, or does not end in time.
    """
    tool = _profiler()
    num_launches = len(job.candidate.plan.launches)
    with tempfile.TemporaryDirectory() as folder:
        path, page = Path(folder) / "job", Path(folder) / "page.csv"
        path.write_bytes(pickle.dumps(job))
        command = [tool, "--csv", "--page", "raw", "--print-units", "base"]
        command += ["--log-file", str(page), "--cache-control", "none"]
        command += ["--launch-skip", str(NUM_WARM_LAUNCHES * num_launches)]
        command += ["--launch-count", str(num_launches)]
        for section in SECTIONS:
            command += ["--section", section]
        command += ["--metrics", ",".join(METRICS)]
        command += [sys.executable, "-P", "-m", "autogemm.targets.cuda.worker.profiled", str(path)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=deadline_s,
                env=child_environment(),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DeviceError(f"Nsight Compute did not end within {deadline_s:g} s") from error
        except OSError as error:
            raise DeviceError(f"{tool} cannot be run: {error.strerror}") from error
        output = page.read_text(errors="replace") if page.exists() else ""
    if '"ID"' not in output:
        raise _failure(output + done.stdout + done.stderr, done.returncode)
    return output[output.index('"ID"') :]


def _profiler() -> str:
    tool = find_profiler()
    if tool is None:
        raise DeviceError(
            "Nsight Compute (ncu) is not found: install it (it is part of the CUDA toolkit), "
            "or put it on the PATH"
        )
    return tool


def _failure(output: str, exit_code: int) -> DeviceError:
    """Why there is no page."""
    if "ERR_NVGPUCTRPERM" in output:
        return DeviceError(NO_PERMISSION)
    lines = [line for line in output.splitlines() if line.strip()] or [f"exit code {exit_code}"]
    errors = [line for line in lines if "==ERROR==" in line] or lines[-1:]
    return DeviceError(f"Nsight Compute gave no counters: {errors[0].strip('= ')}")
