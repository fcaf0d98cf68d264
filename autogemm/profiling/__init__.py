"""A profiler's counters of one kernel, and what they say in words."""

from autogemm.profiling.counters import parse_page
from autogemm.profiling.finding import Finding
from autogemm.profiling.findings import findings
from autogemm.profiling.running import ProfileRequest, profile_kernel, profile_of_page

__all__ = [
    "Finding",
    "ProfileRequest",
    "findings",
    "parse_page",
    "profile_kernel",
    "profile_of_page",
]
