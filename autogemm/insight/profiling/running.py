"""Run a kernel under the profiler and read its counters."""

from dataclasses import dataclass
from datetime import UTC, datetime

from autogemm.compile import Compiler
from autogemm.insight.profiling.counters import parse_page
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate, KernelSource, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Environment
from autogemm.model.results.stored import Profile
from autogemm.targets.cuda.tools import Job, profile_csv, profiler_version

DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """The kernel, its problem and its GPU. ``name`` is a rung's, empty for any other."""

    name: str
    source: KernelSource
    plan: LaunchPlan
    problem: Problem
    device: Device
    environment: Environment
    device_index: int = 0


def profile_kernel(request: ProfileRequest, compiler: Compiler) -> tuple[Profile, str]:
    """Run Nsight Compute on the attached GPU; return the profile and the page that it is from.

    Raises DeviceError where that is not possible, KernelCompileError.
    """
    profiler = profiler_version()
    compiled = compiler.compile(request.source, request.device.sm)
    candidate = Candidate(request.source, request.plan, compiled)
    page = profile_csv(Job(candidate, request.problem, request.device_index), DEADLINE_S)
    return profile_of_page(request, page, profiler), page


def profile_of_page(request: ProfileRequest, page: str, profiler: str) -> Profile:
    """Return the profile of a page that exists already. Raises ProfileError."""
    return Profile(
        kernel=request.name,
        config=request.source.config,
        kernel_sha256=request.source.sha256,
        problem=request.problem,
        device=request.device,
        environment=request.environment,
        profiler=profiler,
        counters=tuple(parse_page(page).items()),
        made_at=datetime.now(UTC),
    )
