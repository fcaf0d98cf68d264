"""``autogemm.record``: sees each product that torch makes in a thread, and times it."""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from autogemm.model.called import CalledGemm, Recorded, called_text, merged
from autogemm.model.problem import Problem
from autogemm.programs.called_ops import COMPOSITE, PRODUCTS, followed, gated_problem, problem_of
from autogemm.support.files import write_atomically

# Results that are watched for what follows, and calls whose events are read at once.
MAX_OPEN = 2048
_NOTHING: Mapping[str, Any] = {}


@contextmanager
def record(path: str | Path) -> Iterator[None]:
    """Record the GEMMs that PyTorch calls in this thread, and write them to ``path`` at the end.

    Backward passes of this thread's results are recorded in any thread; docs/torch.md lists what is
    not recorded. Raises OSError if the file cannot be written.
    """
    recorder = Recorder()
    try:
        with recorder:
            yield
    finally:
        write_atomically(Path(path), called_text(recorder.recorded()).encode())


@dataclass(slots=True, eq=False)
class _Seen:
    """One call. ``fused`` is the problem with the operator that read the result first.

    ``a`` is where A begins. Of two calls whose results are multiplied, one behind an activation,
    each is the other's ``partner``; the former has the problem of both.
    """

    problem: Problem | None
    label: str
    batch: int
    ops: str
    clock: tuple[Any, Any]
    numel: int
    a: int
    fused: Problem | None = None
    fused_ops: str = ""
    fused_clock: tuple[Any, Any] | None = None
    num_readers: int = 0
    num_readers_of_fused: int = 0
    partner: "_Seen | None" = None
    gated: Problem | None = None
    gated_clock: tuple[Any, Any] | None = None

    @property
    def is_fused(self) -> bool:
        """Whether nothing but the operator behind has read the result."""
        return self.fused is not None and self.num_readers == 1

    @property
    def is_gated(self) -> bool:
        """Whether nothing has read two results but what makes one of both."""
        if self.partner is None:
            return False
        gate, up = (self, self.partner) if self.gated is not None else (self.partner, self)
        return gate.is_fused and gate.num_readers_of_fused == up.num_readers == 1


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not looked at
    """A mode that lets everything through and keeps what products were made."""

    def __init__(self) -> None:
        super().__init__()
        self._begin = time.perf_counter()
        # By the address of the result's storage: a weak reference keeps it from being used again.
        self._open: dict[int, tuple[Any, _Seen]] = {}
        # The same of what an operator made of a product.
        self._fused: dict[int, tuple[Any, _Seen]] = {}
        self._done: list[_Seen] = []
        self._gemms: tuple[CalledGemm, ...] = ()
        self._on_cuda = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator; see whether it is a product, or follows one."""
        kwargs = kwargs or {}
        name = func._schema.name
        if name in COMPOSITE:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        if name in PRODUCTS:
            return self._product(func, name, args, kwargs)
        readers = [] if _is_view(func) else self._read(args, kwargs)
        if not readers:
            return func(*args, **kwargs)
        result, clock = self._timed(func, args, kwargs)
        if name == "aten::mul":
            self._gate(args, clock)
        for seen, is_whole in readers:
            if self._follow(seen, name, args, kwargs, clock, is_whole):
                self._watch(self._fused, result, seen)
        return result

    def recorded(self) -> Recorded:
        """Return all that was seen, the longest time first."""
        self._close(0)
        self._sum_up()
        gpu = torch.cuda.get_device_name() if self._on_cuda else ""
        wall_us = (time.perf_counter() - self._begin) * 1e6
        clock = "cuda" if self._on_cuda else "cpu"
        return merged([Recorded(clock, gpu, wall_us, self._gemms)])

    def _product(self, func: Any, name: str, args: Sequence[Any], kwargs: Any) -> Any:
        tf32 = torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32"
        self._read(args, kwargs)
        found = problem_of(name, args, kwargs, tf32=tf32)
        result, clock = self._timed(func, args, kwargs)
        if isinstance(result, torch._subclasses.FakeTensor):
            return result
        ops, a = name.replace("::", "."), args[PRODUCTS[name][1]].data_ptr()
        self._watch(self._open, result, _Seen(*found, ops, clock, result.numel(), a))
        self._close(MAX_OPEN)
        return result

    def _watch(self, results: dict[int, tuple[Any, _Seen]], result: Any, seen: _Seen) -> None:
        storage = StorageWeakRef(result.untyped_storage())
        results[storage.cdata] = (storage, seen)

    def _timed(self, func: Any, args: Sequence[Any], kwargs: Any) -> tuple[Any, tuple[Any, Any]]:
        first = next(one for one in _tensors((args, kwargs)))
        if not first.is_cuda:
            begin = time.perf_counter()
            result = func(*args, **kwargs)
            return result, (begin, time.perf_counter())
        self._on_cuda = True
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        result = func(*args, **kwargs)
        end.record()
        return result, (begin, end)

    def _read(self, args: Sequence[Any], kwargs: Any) -> list[tuple[_Seen, bool]]:
        """Return the products whose results are read, and whether all is the first argument."""
        found = []
        for place, tensor in enumerate(_tensors((args, kwargs))):
            if type(tensor) is not torch.Tensor or tensor.device.type == "meta":
                continue
            storage = tensor.untyped_storage()._cdata
            if storage in self._fused:
                self._fused[storage][1].num_readers_of_fused += 1
            _, seen = self._open.get(storage, (None, None))
            if seen is not None:
                seen.num_readers += 1
                found.append((seen, place == 0 and tensor.numel() == seen.numel))
        return found

    def _follow(  # noqa: PLR0913, PLR0917
        self,
        seen: _Seen,
        name: str,
        args: Sequence[Any],
        kwargs: Any,
        clock: tuple[Any, Any],
        is_whole: bool,
    ) -> bool:
        if seen.problem is None or seen.num_readers > 1 or not is_whole:
            return False
        fused = followed(seen.problem, name, args, kwargs)
        if fused is not None:
            ops = f"{seen.ops} {name.replace('::', '.')}"
            seen.fused, seen.fused_ops, seen.fused_clock = fused, ops, clock
        return fused is not None

    def _gate(self, args: Sequence[Any], clock: tuple[Any, Any]) -> None:
        """See whether a product behind an activation is multiplied by another of the same A."""
        storages = [one.untyped_storage()._cdata for one in _tensors(list(args))]
        for one, other in itertools.permutations(storages):
            _, gate = self._fused.get(one, (None, None))
            _, up = self._open.get(other, (None, None))
            if gate is None or up is None or gate is up or gate.a != up.a:
                continue
            if any(tensor.numel() != gate.numel for tensor in _tensors(list(args))):
                continue
            gate.gated = gated_problem(gate.problem, gate.fused, up.problem)
            if gate.gated is not None:
                gate.partner, up.partner, gate.gated_clock = up, gate, clock

    def _close(self, most: int) -> None:
        """Give up watching all but the newest."""
        for cdata in list(itertools.islice(self._fused, max(0, len(self._fused) - most))):
            del self._fused[cdata]
        if len(self._open) > most:
            for cdata in list(itertools.islice(self._open, len(self._open) - most)):
                self._done.append(self._open.pop(cdata)[1])
        if len(self._done) > MAX_OPEN:
            self._sum_up()

    def _sum_up(self) -> None:
        if self._on_cuda:
            torch.cuda.synchronize()
        new = (CalledGemm(*line) for seen in self._done for line in _lines(seen))
        summed = Recorded("cpu", "", 0.0, self._gemms), Recorded("cpu", "", 0.0, tuple(new))
        self._gemms = merged(summed).gemms
        self._done.clear()


def _lines(seen: _Seen) -> Iterator[tuple[Any, ...]]:
    """The call as a line; with what followed, if nothing else read the product. Of two calls that
    are a gated one, the former has the line.
    """
    time_us = _elapsed_us(seen.clock)
    problem, ops, batch = seen.problem, seen.ops, seen.batch
    if seen.is_fused and seen.fused is not None and seen.fused_clock is not None:
        problem, ops = seen.fused, seen.fused_ops
        time_us += _elapsed_us(seen.fused_clock)
    if seen.is_gated and seen.partner is not None:
        if seen.gated is None or seen.gated_clock is None:
            return
        problem, ops = seen.gated, f"{ops} {seen.partner.ops} aten.mul"
        time_us += _elapsed_us(seen.partner.clock) + _elapsed_us(seen.gated_clock)
    label = seen.label if problem is None else problem.label
    yield problem, label, batch, ops, 1, time_us


def _elapsed_us(clock: tuple[Any, Any]) -> float:
    begin, end = clock
    if isinstance(begin, float):
        return float(end - begin) * 1e6
    return float(begin.elapsed_time(end)) * 1e3


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _is_view(func: Any) -> bool:
    """Whether an operator's result is its argument's memory, not written."""
    infos = [one.alias_info for one in func._schema.returns]
    return any(one is not None and not one.is_write for one in infos) or func._schema.name in (
        "aten::_unsafe_view",
        "aten::_reshape_alias",
    )
