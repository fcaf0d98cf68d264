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
from autogemm.programs.called_ops import COMPOSITE, PRODUCTS, followed, problem_of
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


@dataclass(slots=True)
class _Seen:
    """One call. ``fused`` is the problem with the operator that read the result first."""

    problem: Problem | None
    label: str
    batch: int
    ops: str
    clock: tuple[Any, Any]
    numel: int
    fused: Problem | None = None
    fused_ops: str = ""
    fused_clock: tuple[Any, Any] | None = None
    num_readers: int = 0


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not looked at
    """A mode that lets everything through and keeps what products were made."""

    def __init__(self) -> None:
        super().__init__()
        self._begin = time.perf_counter()
        # By the address of the result's storage: a weak reference keeps it from being used again.
        self._open: dict[int, tuple[Any, _Seen]] = {}
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
        for seen, is_whole in readers:
            self._follow(seen, name, args, kwargs, clock, is_whole)
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
        ops = name.replace("::", ".")
        storage = StorageWeakRef(result.untyped_storage())
        self._open[storage.cdata] = (storage, _Seen(*found, ops, clock, result.numel()))
        self._close(MAX_OPEN)
        return result

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
            _, seen = self._open.get(tensor.untyped_storage()._cdata, (None, None))
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
    ) -> None:
        if seen.problem is None or seen.num_readers > 1 or not is_whole:
            return
        fused = followed(seen.problem, name, args, kwargs)
        if fused is not None:
            ops = f"{seen.ops} {name.replace('::', '.')}"
            seen.fused, seen.fused_ops, seen.fused_clock = fused, ops, clock

    def _close(self, most: int) -> None:
        """Give up watching all but the newest."""
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
    """The call as a line; with what followed, if nothing else read the product."""
    time_us = _elapsed_us(seen.clock)
    if seen.fused is not None and seen.fused_clock is not None and seen.num_readers == 1:
        time_us += _elapsed_us(seen.fused_clock)
        yield seen.fused, seen.fused.label, seen.batch, seen.fused_ops, 1, time_us
    else:
        yield seen.problem, seen.label, seen.batch, seen.ops, 1, time_us


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
