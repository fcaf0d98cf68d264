"""A profiler's counters of one kernel, and what they say in words."""

from autogemm.insight.profiling.counters import parse_page
from autogemm.insight.profiling.findings import Finding, findings
from autogemm.insight.profiling.running import ProfileRequest, profile_kernel, profile_of_page

__all__ = [
    "Finding",
    "ProfileRequest",
    "findings",
    "parse_page",
    "profile_kernel",
    "profile_of_page",
]
