"""Turn a call's shapes into launches that only need addresses: choose, compile, load, keep."""

import ctypes
import logging
import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.dispatch import Chooser
from autogemm.model.elements import neutral_array
from autogemm.model.kernel import Launch, LaunchPlan, TensorMap
from autogemm.model.problem import Problem
from autogemm.runtime.driver import CudaDriver, LaunchCall, cuda_driver
from autogemm.runtime.operands import Call
from autogemm.space import default_families, launch_plan
from autogemm.store import DecidedRow, open_store, shipped_rows
from autogemm.support.errors import NotFoundError, UsageError
from autogemm.targets.cuda import RawMap, argument_values, encode, pointers_to

VECTOR_BYTES = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded kernel's launches, each with its function, and the plan of them."""

    launches: tuple[tuple[int, Launch], ...]
    plan: LaunchPlan


class Gpu:
    """One GPU of this process: its context, chooser, and the modules loaded into it.

    With ``emulation`` its kernels may compute FP32 by products of lower precision.
    """

    def __init__(self, driver: CudaDriver, index: int, emulation: bool = False) -> None:
        self.driver = driver
        self.index = index
        self.emulation = emulation
        self.device = driver.device(index)
        self.context = driver.context(index)
        self._modules: dict[str, int] = {}
        self._chooser: Chooser | None = None

    @property
    def chooser(self) -> Chooser:
        """The chooser of the default database as of the first use, or the last `forget`, and of the
        catalogue.
        """
        if self._chooser is None:
            families = default_families(emulation=self.emulation)
            # A winner of emulation says nothing where that is not allowed.
            names = {family.name for family in families}
            runs = [run for run in _stored_runs() if _winner_of(run) in names]
            shipped = shipped_rows(names, self.device.arch)
            self._chooser = Chooser([*runs, *shipped], families, self.device)
        return self._chooser

    def forget(self) -> None:
        """Read the database anew at the next call."""
        self._chooser = None

    def kernel(self, problem: Problem) -> Kernel:
        """The kernel for a problem, compiled or from the cubin cache, loaded."""
        choice = self.chooser.choose(problem)
        _log.debug("%s: %s (%s)", problem.label, choice.config, choice.why)
        source = render(choice.family, choice.config, problem)
        plan = launch_plan(choice.family, choice.config, problem)
        module = self._modules.get(source.sha256)
        if module is None:
            with closing(Compiler(threads=1)) as compiler:
                cubin = compiler.compile(source, self.device.sm).cubin
            module = self._modules[source.sha256] = self.driver.load(self.context, cubin)
        return Kernel(self._launches(module, plan), plan)

    def _launches(self, module: int, plan: LaunchPlan) -> tuple[tuple[int, Launch], ...]:
        function, context = self.driver.function, self.context
        return tuple(
            (function(context, module, launch.kernel, launch.smem_bytes), launch)
            for launch in plan.launches
        )


def _stored_runs() -> list[DecidedRow]:
    try:
        with open_store(create=False) as store:
            return store.decided()
    except NotFoundError:
        return []


def _winner_of(run: DecidedRow) -> str:
    config = run.finals.winner.config
    assert config is not None, "a winner has a config"
    return config.family


def as_aligned(call: Call, addresses: tuple[int, int, int]) -> Problem:
    """The problem whose kernel may be run on matrices that begin there, batches included.

    Kernels read vectors where the leading dimension allows it, and take the start as aligned. Where
    it is not, a leading dimension that allows no more stands in: it only says which code is needed.
    """
    problem = call.problem
    strides = {"lda": problem.lda, "ldb": problem.ldb, "ldc": problem.ldc}
    sizes = element_bytes(problem)
    for place, (name, stride) in enumerate(strides.items()):
        size_bytes = sizes[place]
        starts = [addresses[place], *(offset[place] * size_bytes for offset in call.offsets)]
        aligned = max(1, math.gcd(VECTOR_BYTES, *starts) // size_bytes)
        if math.gcd(stride, VECTOR_BYTES // size_bytes) > aligned:
            strides[name] = stride + aligned
    lda, ldb, ldc = strides.values()
    return replace(problem, lda=lda, ldb=ldb, ldc=ldc)


def element_bytes(problem: Problem) -> tuple[int, int, int]:
    """Return the bytes of an element of A, of B and of C."""
    dtype = problem.dtype
    return (dtype.ab.size_bytes, dtype.ab.size_bytes, dtype.c.size_bytes)


class Plan:
    """One shape of call, ready: it takes addresses, factors and a stream. For one thread.

    ``kernel`` is None where there is nothing to multiply. ``is_tuned`` says that a search for these
    sizes would find nothing to do.
    """

    def __init__(
        self,
        gpu: Gpu,
        call: Call | None,
        kernel: Kernel | None,
        shape: tuple[int, ...],
        *,
        is_tuned: bool,
    ) -> None:
        self.shape = shape
        self.is_tuned = is_tuned
        self.device = gpu.index
        self.kernel = kernel
        self._gpu = gpu
        self._streams: dict[int, _OnStream] = {}
        self._extras: list[int] = []
        self.writes_output = call is not None and call.problem.epilogue.output is not None
        if call is None or kernel is None:
            return
        self._dtype = call.problem.dtype
        self._has_exact_sums = self._dtype.has_exact_sums
        self._launches = kernel.launches
        self._swapped = call.swapped
        problem = call.problem
        sizes = element_bytes(problem)
        self._offsets = [
            tuple(size * start for size, start in zip(sizes, starts, strict=True))
            for starts in call.offsets
        ]
        # The pointers point into the values, both of which must live as long as this.
        self._values: dict[str, Any] = {**argument_values(kernel.plan, problem)}
        self._pointers = pointers_to(self._values)
        self._alpha, self._beta = self._values["alpha"], self._values["beta"]
        self._a, self._b, self._c = (self._values[name] for name in ("A", "B", "C"))
        self._workspace = self._values.get("workspace", ctypes.c_void_p())
        self._maps = [_PlacedMap(one, self._values[one.name]) for one in kernel.plan.tensor_maps]
        # A family's additional arguments are neutral. Inputs of an epilogue are given.
        for extra in kernel.plan.arrays:
            if extra.is_given:
                continue
            content = neutral_array(extra, problem.dtype).tobytes()
            address = gpu.driver.copy(gpu.context, content)
            self._extras.append(address)
            self._values[extra.argument.name].value = address

    def run(  # noqa: PLR0913, PLR0917  # what changes from call to call
        self, a: int, b: int, c: int, alpha: float, beta: float, stream: int
    ) -> None:
        """Put the GEMM of every batch on the stream."""
        if self._swapped:
            a, b = b, a
        try:
            self._alpha.value = alpha
            self._beta.value = beta
        except TypeError as error:
            raise UsageError(f"alpha and beta are numbers, got {alpha!r}, {beta!r}") from error
        if self._has_exact_sums:
            self._dtype.require_factors(alpha, beta)
        on_stream = self._streams.get(stream) or self._first_on(stream)
        self._workspace.value = on_stream.workspace
        for start_a, start_b, start_c in self._offsets:
            self._a.value = a + start_a
            self._b.value = b + start_b
            self._c.value = c + start_c
            if self._maps:
                self._place_maps()
            for call in on_stream.calls:
                # Refused where the thread has another context: then it costs a little more.
                launch, arguments = call
                if launch(*arguments):
                    self._gpu.driver.relaunch(self._gpu.context, call)

    def give(self, inputs: Mapping[str, int | float]) -> None:
        """Set inputs of the epilogue and its second output by the names of their arguments:
        addresses and numbers.
        """
        for name, value in inputs.items():
            self._values[name].value = value

    def _place_maps(self) -> None:
        for one in self._maps:
            one.place(self._values[one.matrix].value or 0)

    def close(self) -> None:
        """Give the workspaces and a family's own arrays back."""
        workspaces = (one.workspace for one in self._streams.values() if one.workspace)
        for address in (*workspaces, *self._extras):
            self._gpu.driver.free(self._gpu.context, address)
        self._streams.clear()
        self._extras.clear()

    def _first_on(self, stream: int) -> "_OnStream":
        """Make a workspace for the stream: launches that may run at the same time share none."""
        assert self.kernel is not None, "there is something to multiply"
        driver, num_bytes = self._gpu.driver, self.kernel.plan.workspace_bytes
        workspace = driver.zeros(self._gpu.context, num_bytes) if num_bytes else 0
        arguments = ctypes.addressof(self._pointers)
        calls = tuple(driver.call(*launch, stream, arguments) for launch in self._launches)
        self._streams[stream] = on_stream = _OnStream(calls, workspace)
        return on_stream


class _PlacedMap:
    """A tensor map of matrices that lie elsewhere from call to call."""

    def __init__(self, tensor_map: TensorMap, raw: RawMap) -> None:
        self.raw = raw
        self.matrix = tensor_map.matrix
        self._map = tensor_map
        self._address = 0

    def place(self, address: int) -> None:
        """Encode the map for a matrix at that address. A launch has copied what it was given."""
        if address != self._address:
            encode(self._map, address, self.raw)
            self._address = address


@dataclass(frozen=True, slots=True)
class _OnStream:
    """A plan's launches on one stream, and their workspace, 0 for none."""

    calls: tuple[LaunchCall, ...]
    workspace: int


@cache
def gpu(index: int, emulation: bool = False) -> Gpu:
    """Return the one object for each GPU and arithmetic. Raises DeviceError without a driver."""
    return Gpu(cuda_driver(), index, emulation)
