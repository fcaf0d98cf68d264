"""NVIDIA's own programs run on a candidate: compute-sanitizer and Nsight Compute."""

from autogemm.targets.cuda.tools.profiler import profile_csv, profiler_version
from autogemm.targets.cuda.tools.sanitizer import Job

__all__ = ["Job", "profile_csv", "profiler_version"]
