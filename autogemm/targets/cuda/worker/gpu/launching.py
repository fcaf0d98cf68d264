"""A candidate's machine code on the GPU: loading it, queueing its launches."""

import contextlib
import ctypes
from collections.abc import Iterator, Mapping

from autogemm.model.kernel import DEFAULT_SMEM_BYTES, Candidate, Launch, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Status
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.arguments import CValue, argument_values, encode
from autogemm.targets.cuda.dependent_launch import (
    DependentLaunch,
    driver_overlaps,
    launch_dependent,
)
from autogemm.targets.cuda.worker.gpu.bare import BareGpu
from autogemm.targets.cuda.worker.gpu.gpu import Gpu

# Errors by which the driver refuses a launch and leaves the context as it was. Any other one may
# be the late report of a crash.
REFUSALS = frozenset(
    {
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "CUDA_ERROR_INVALID_IMAGE",
        "CUDA_ERROR_INVALID_SOURCE",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "CUDA_ERROR_INVALID_PTX",
        "CUDA_ERROR_NOT_FOUND",
        "CUDA_ERROR_NOT_SUPPORTED",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING",
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
    }
)


class CandidateError(Exception):
    """The candidate failed. ``poisoned``: and took the context with it."""

    def __init__(self, status: Status, reason: str, *, poisoned: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = " ".join(reason.split())
        self.poisoned = poisoned


class Arguments:
    """Kernel arguments as the driver takes them: an array of pointers to the values."""

    def __init__(self, *values: CValue) -> None:
        self._values = values  # the pointers point into these
        self._pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        self.address = ctypes.addressof(self._pointers)


def gemm_arguments(
    plan: LaunchPlan, problem: Problem, factors: tuple[float, float], places: Mapping[str, int]
) -> Arguments:
    """Return the arguments of the plan's kernels. ``factors`` are alpha and beta, ``places``
    the addresses of matrices, workspace and a family's own arrays by name.

    Raises CandidateError where the driver refuses a tensor map.
    """
    values = argument_values(plan, problem)
    values["alpha"], values["beta"] = map(ctypes.c_float, factors)
    for argument in plan.signature:
        if argument.is_array:
            values[argument.name] = ctypes.c_void_p(places[argument.name])
    try:
        for one in plan.tensor_maps:
            raw = values[one.name]
            assert isinstance(raw, ctypes.Array)
            encode(one, places[one.matrix], raw)
    except DeviceError as error:
        raise CandidateError(Status.LAUNCH_FAILED, str(error)) from error
    return Arguments(*values.values())


class LoadedKernel:
    """All launches of one candidate's plan, ready. Raises CandidateError."""

    def __init__(self, gpu: Gpu | BareGpu, candidate: Candidate) -> None:
        if candidate.compiled is None:
            raise CandidateError(Status.LAUNCH_FAILED, "the candidate was not compiled")
        self._gpu = gpu
        self._launches = candidate.plan.launches
        with self._step("loading the machine code"):
            self._module = gpu.driver.moduleLoadData(candidate.compiled.cubin)
        try:
            self._functions = [self._function(launch) for launch in self._launches]
        except BaseException:
            self.unload()
            raise

    def queue(self, arguments: Arguments) -> None:
        """Queue every launch of the plan once."""
        for launch, function in zip(self._launches, self._functions, strict=True):
            with self._step("launching", launch):
                if launch.overlaps and driver_overlaps():
                    self._queue_dependent(launch, function, arguments)
                    continue
                self._gpu.driver.launchKernel(
                    function,
                    *launch.grid,
                    *launch.threads,
                    launch.smem_bytes,
                    self._gpu.stream.ptr,
                    arguments.address,
                    0,
                )

    def _queue_dependent(self, launch: Launch, function: int, arguments: Arguments) -> None:
        stream = self._gpu.stream.ptr
        dependent = DependentLaunch.of(launch.grid, launch.threads, launch.smem_bytes, stream)
        status = launch_dependent(function, dependent, arguments.address)
        if status:
            raise self._gpu.driver.CUDADriverError(status)

    def unload(self) -> None:
        """Give the machine code's memory back. The stream must be idle."""
        with contextlib.suppress(*self._gpu.cuda_errors):
            self._gpu.driver.moduleUnload(self._module)

    def _function(self, launch: Launch) -> int:
        driver = self._gpu.driver
        with self._step("looking up the kernel", launch):
            function = int(driver.moduleGetFunction(self._module, launch.kernel))
        if launch.smem_bytes > DEFAULT_SMEM_BYTES:
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            with self._step("asking for shared memory", launch):
                driver.funcSetAttribute(function, attribute, launch.smem_bytes)
        return function

    @contextlib.contextmanager
    def _step(self, doing: str, launch: Launch | None = None) -> Iterator[None]:
        try:
            yield
        except (*self._gpu.cuda_errors, OverflowError) as error:
            what = f"{doing} {described(launch)}" if launch else doing
            name = str(error).partition(":")[0].strip()
            refused = name in REFUSALS or isinstance(error, OverflowError)
            status = Status.LAUNCH_FAILED if refused else Status.CRASHED
            raise CandidateError(status, f"{what}: {error}", poisoned=not refused) from error


def described(launch: Launch) -> str:
    """Describe a launch by what matters when it is refused."""
    grid = "x".join(map(str, launch.grid))
    return (
        f"{launch.kernel} (grid {grid}, {launch.num_threads} threads, "
        f"{launch.smem_bytes} bytes of dynamic shared memory)"
    )
