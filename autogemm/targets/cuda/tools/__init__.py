"""NVIDIA's own programs run on a candidate: compute-sanitizer and Nsight Compute."""

from autogemm.targets.cuda.tools.profiler import profile_csv, profiler_version
from autogemm.targets.cuda.tools.sanitizer import Job
from autogemm.targets.cuda.tools.toolkit import find_program, program_version

__all__ = ["Job", "find_program", "profile_csv", "profiler_version", "program_version"]
