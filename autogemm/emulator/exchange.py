"""The structures of shim/protocol.h, and one run of an emulator process.

The kernel runs in a process of its own: whatever it does, Python goes on.
"""

import ctypes
import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autogemm.model.elements import Stored
from autogemm.model.kernel import LaunchPlan, TensorMap
from autogemm.model.problem import Problem
from autogemm.model.signature import COUNTS, OFFSETS, extents, factors
from autogemm.support.child_process import MEMORY_CHECK_S, resident_bytes, watched_end
from autogemm.support.errors import UsageError

MAGIC = 0x41474D41
MAX_EXTRAS = 8
MAX_BUFFERS = 4 + MAX_EXTRAS
MAX_ARGUMENTS = 32
MAX_LAUNCHES = 8
MAX_TENSOR_MAPS = 8
MAX_FINDINGS = 256
MAX_DYNAMIC_SMEM = 256 * 1024
MAX_THREADS = 1024
# Resident memory of an emulator process beside the file that it shares. Address space is not
# bounded: the emulator reserves much more of it than it touches.
MAX_MEMORY_BYTES = 8 * 2**30
# Seconds after its deadline at which a process that does not heed it is killed.
GRACE_S = 10
# Deadlines are of a processor's time; so many times as much may pass, on a busy machine.
STARVED = 4


@dataclass(frozen=True, slots=True)
class Program:
    """An emulator executable, and the program that starts it without any rights except to
    compute."""

    executable: Path
    confine: Path


class Region(IntEnum):
    """The memory of an address; arrays beside the matrices have numbers from EXTRA on."""

    A = 0
    B = 1
    C = 2
    WORKSPACE = 3
    EXTRA = 4
    DYNAMIC_SHARED = MAX_BUFFERS
    STATIC_SHARED = MAX_BUFFERS + 1
    ELSEWHERE = MAX_BUFFERS + 2


class ArgumentSource(IntEnum):
    """The source of a kernel's argument in the emulator process."""

    VALUE = 0
    BUFFER = 1
    TENSOR_MAP = 2


class State(IntEnum):
    """The end of an emulator process."""

    RUNNING = 0
    FINISHED = 1
    ABORTED = 2
    CRASHED = 3
    TIMED_OUT = 4
    NO_KERNEL = 5
    BAD_CLUSTER = 6
    NO_ADDRESS_SPACE = 7
    TOO_LARGE = 8

    @property
    def completed(self) -> bool:
        """All launches ran to their end."""
        return self is State.FINISHED


def _uint32(*names: str) -> tuple[tuple[str, type[ctypes.c_uint32]], ...]:
    return tuple((name, ctypes.c_uint32) for name in names)


def _uint64(*names: str) -> tuple[tuple[str, type[ctypes.c_uint64]], ...]:
    return tuple((name, ctypes.c_uint64) for name in names)


class RawBuffer(ctypes.Structure):
    """`BufferSpec` of shim/protocol.h."""

    _fields_ = (
        *_uint64("offset", "words", "pitch"),
        *_uint32("columns", "stride", "misalign", "readable", "rows", "group_rows", "counts"),
    )


class RawArgument(ctypes.Structure):
    """`ArgumentSpec` of shim/protocol.h."""

    _fields_ = (*_uint32("source", "number"), ("bits", ctypes.c_uint64))


class RawLaunch(ctypes.Structure):
    """`LaunchSpec` of shim/protocol.h."""

    _fields_ = (
        ("kernel", ctypes.c_char * 64),
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        *_uint32("smem_bytes", "overlaps"),
    )


class RawTensorMap(ctypes.Structure):
    """`TensorMapSpec` of shim/protocol.h."""

    _fields_ = (
        *_uint32("region", "element"),
        *_uint64("offset_bytes", "ld_bytes"),
        *_uint32("columns", "rows", "box_columns", "box_rows", "swizzle_bytes", "matrices"),
        *_uint64("matrix_bytes", "divided"),
    )


class RawFinding(ctypes.Structure):
    """`Finding` of shim/protocol.h."""

    _fields_ = (
        *_uint32("kind", "region"),
        *_uint64("pc", "other_pc"),
        ("offset", ctypes.c_int64),
        *_uint32("size", "write", "block", "thread", "other_block", "other_thread"),
        *_uint32("pass_idx", "owner"),
        ("count", ctypes.c_uint64),
    )


class RawExchange(ctypes.Structure):
    """`Exchange` of shim/protocol.h."""

    _fields_ = (
        *_uint32("magic", "exchange_bytes", "num_arguments", "num_buffers", "seed"),
        *_uint32("late_copies", "num_launches", "deadline_s"),
        *_uint64("trace_offset", "trace_capacity"),
        *_uint32("trace_block", "num_passes", "resident_blocks", "word_bytes"),
        *_uint32("stack_fill", "reserved"),
        *_uint64("first_c_offset", "counts_offset", "counts_capacity"),
        ("arguments", RawArgument * MAX_ARGUMENTS),
        ("buffers", RawBuffer * MAX_BUFFERS),
        ("launches", RawLaunch * MAX_LAUNCHES),
        ("tensor_maps", RawTensorMap * MAX_TENSOR_MAPS),
        *_uint32("state", "signal"),
        *_uint64("crash_pc", "num_trace", "num_accesses", "num_counts", "static_smem_bytes"),
        *_uint32("num_findings", "findings_lost"),
        ("findings", RawFinding * MAX_FINDINGS),
    )


TRACE_RECORD = np.dtype(
    {
        "names": ("pc", "thread", "region_and_write", "size", "offset", "phase"),
        "formats": ("u4", "u2", "u2", "u4", "u4", "u4"),
    }
)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A global buffer of exactly these elements; ``columns`` of every ``stride`` are valid.

    Behind the workspace come arrays that kernels only read, and a second output, the one array
    there whose contents are not ``readable``.

    The kernel finds its rows ``pitch`` elements apart, ``stride`` where that is 0. Between rows
    that are farther than ``stride`` lies address space that is reserved and holds nothing. The
    first ``rows`` of every ``group_rows`` are valid, all where that is 0; with ``has_counts`` as
    many as the last buffer says.
    """

    data: Stored
    columns: int
    stride: int
    readable: bool
    misalign_bytes: int = 0
    pitch: int = 0
    rows: int = 0
    group_rows: int = 0
    has_counts: bool = False


@dataclass(frozen=True, slots=True)
class RawResult:
    """Results of the process: its state, the exchange header, C, and the trace if one was asked.

    ``first_c`` is C after the first of two passes, None where there was one. ``output`` is the
    second output, after the last pass, None where there is none. ``counts`` says how often lines
    ran, in gcov's format; empty unless it was asked for.
    """

    header: RawExchange
    state: State
    c: Stored
    first_c: Stored | None
    output: Stored | None
    trace: npt.NDArray[np.void]
    counts: bytes


def _page(offset: int) -> int:
    return -(-offset // 4096) * 4096


def check_launchable(plan: LaunchPlan) -> None:
    """Raises UsageError for what no emulator process could run."""
    if not 1 <= len(plan.launches) <= MAX_LAUNCHES:
        raise UsageError(
            f"the emulator runs 1 to {MAX_LAUNCHES} launches, got {len(plan.launches)}"
        )
    if len(plan.extras) + plan.grouped > MAX_EXTRAS:
        raise UsageError(
            f"the emulator takes {MAX_EXTRAS - plan.grouped} arguments beside a GEMM's, got "
            f"{len(plan.extras)}"
        )
    if len(plan.tensor_maps) > MAX_TENSOR_MAPS:
        raise UsageError(
            f"the emulator takes {MAX_TENSOR_MAPS} tensor maps, got {len(plan.tensor_maps)}"
        )
    for launch in plan.launches:
        if not 1 <= launch.num_threads <= MAX_THREADS:
            raise UsageError(
                f"a block has 1 to {MAX_THREADS} threads, {launch.kernel} asks for "
                f"{launch.num_threads}"
            )
        if not 0 <= launch.smem_bytes <= MAX_DYNAMIC_SMEM:
            raise UsageError(
                f"the emulator has {MAX_DYNAMIC_SMEM} bytes of dynamic shared memory, "
                f"{launch.kernel} asks for {launch.smem_bytes}"
            )


def run_process(
    program: Program,
    header: RawExchange,
    plan: LaunchPlan,
    problem: Problem,
    buffers: Sequence[Buffer],
) -> RawResult:
    """Run the launches in a process of its own. The header brings the schedule; ``buffers`` are
    those of A, B, C, the workspace (empty where there is none), the plan's own arrays, and offsets
    of groups where there are any.

    A plan with a workspace runs twice on it, unless it is traced: the second pass finds the
    counters that the first left and poison in the rest.
    """
    _describe(header, plan, buffers)
    _describe_arguments(header, plan, problem)
    trace_bytes = header.trace_capacity * TRACE_RECORD.itemsize
    with tempfile.TemporaryFile() as file:
        header.counts_offset = _page(header.trace_offset + trace_bytes)
        file.truncate(header.counts_offset + header.counts_capacity)
        with mmap.mmap(file.fileno(), 0) as memory:
            memory[: ctypes.sizeof(header)] = bytes(header)
            for raw, buffer in zip(header.buffers, buffers, strict=False):
                memory[raw.offset : raw.offset + buffer.data.nbytes] = buffer.data.tobytes()
            killed = _wait_for(program, file.fileno(), header.deadline_s, len(memory))
            after = RawExchange.from_buffer_copy(memory)
            given = buffers[Region.C].data
            # Places as they were told to the process: what it made of them is not asked.
            c_offset = header.buffers[Region.C].offset
            c = np.frombuffer(memory, given.dtype, given.size, c_offset).copy()
            first_c = None
            if header.num_passes > 1:
                first_offset = header.first_c_offset
                first_c = np.frombuffer(memory, given.dtype, given.size, first_offset).copy()
            output = None
            for index, buffer in enumerate(buffers):
                if index >= Region.EXTRA and not buffer.readable:
                    data, place = buffer.data, header.buffers[index].offset
                    output = np.frombuffer(memory, data.dtype, data.size, place).copy()
            num_trace = min(after.num_trace, header.trace_capacity)
            trace = np.frombuffer(memory, TRACE_RECORD, num_trace, header.trace_offset).copy()
            num_counts = min(after.num_counts, header.counts_capacity)
            counts = memory[header.counts_offset : header.counts_offset + num_counts]
    state = _state(after.state, killed)
    if state is State.NO_ADDRESS_SPACE:
        raise UsageError(
            f"the emulator cannot reserve address space for {problem.label}: lift the limit on "
            "virtual memory (ulimit -v unlimited); none of it is used"
        )
    return RawResult(after, state, c, first_c, output, trace, counts)


def _describe(header: RawExchange, plan: LaunchPlan, buffers: Sequence[Buffer]) -> None:
    header.magic = MAGIC
    header.exchange_bytes = ctypes.sizeof(RawExchange)
    header.num_launches = len(plan.launches)
    for raw_launch, launch in zip(header.launches, plan.launches, strict=False):
        raw_launch.kernel = launch.kernel.encode()
        raw_launch.grid[:] = launch.grid
        raw_launch.threads[:] = launch.threads
        raw_launch.smem_bytes = launch.smem_bytes
        raw_launch.overlaps = launch.overlaps
    for raw_map, tensor_map in zip(header.tensor_maps, plan.tensor_maps, strict=False):
        _describe_map(raw_map, tensor_map, _region(plan, tensor_map.matrix))
    header.num_buffers = len(buffers)
    header.word_bytes = min(buffer.data.itemsize for buffer in buffers)
    offset = _page(ctypes.sizeof(RawExchange))
    for raw, buffer in zip(header.buffers, buffers, strict=False):
        words = buffer.data.itemsize // header.word_bytes
        raw.offset, raw.words = offset, words * buffer.data.size
        raw.columns, raw.stride = words * buffer.columns, words * buffer.stride
        raw.pitch = words * (buffer.pitch or buffer.stride)
        raw.misalign, raw.readable = buffer.misalign_bytes, buffer.readable
        raw.rows, raw.group_rows = buffer.rows, buffer.group_rows
        raw.counts = len(buffers) - 1 if buffer.has_counts else 0
        offset = _page(offset + buffer.data.nbytes)
    header.num_passes = 2 if plan.workspace_bytes and not header.trace_capacity else 1
    header.first_c_offset = offset
    header.trace_offset = _page(offset + buffers[Region.C].data.nbytes)


def _describe_arguments(header: RawExchange, plan: LaunchPlan, problem: Problem) -> None:
    signature = plan.signature
    header.num_arguments = len(signature)
    maps = [one.name for one in plan.tensor_maps]
    values: dict[str, ctypes.c_int32 | ctypes.c_float] = {
        **{name: ctypes.c_int32(value) for name, value in extents(problem).items()},
        **{name: ctypes.c_float(value) for name, value in factors(problem).items()},
        **{
            extra.argument.name: ctypes.c_float(extra.neutral)
            for extra in plan.extras
            if extra.count is None
        },
    }
    for raw, argument in zip(header.arguments, signature, strict=False):
        if argument.is_scalar:
            raw.source = ArgumentSource.VALUE
            raw.bits = int.from_bytes(bytes(values[argument.name]), sys.byteorder)
        elif argument.is_array:
            raw.source, raw.number = ArgumentSource.BUFFER, _region(plan, argument.name)
        else:
            raw.source, raw.number = ArgumentSource.TENSOR_MAP, maps.index(argument.name)


def _region(plan: LaunchPlan, name: str) -> int:
    """The number of the buffer that an array's argument of that name points to."""
    own = [*(extra.argument.name for extra in plan.arrays), COUNTS if plan.masked else OFFSETS]
    return Region.EXTRA + own.index(name) if name in own else Region[name.upper()]


def _describe_map(raw: RawTensorMap, tensor_map: TensorMap, region: int) -> None:
    raw.region = region
    raw.element = tensor_map.element.format_code
    raw.offset_bytes = tensor_map.offset_bytes
    raw.ld_bytes = tensor_map.element.size_bytes * tensor_map.ld
    raw.columns, raw.rows = tensor_map.extent
    raw.box_columns, raw.box_rows = tensor_map.box
    raw.swizzle_bytes = tensor_map.swizzle_bytes
    raw.matrices = tensor_map.matrices or 1
    raw.matrix_bytes = tensor_map.element.size_bytes * tensor_map.matrix_ld
    raw.divided = tensor_map.divided


# The state that a process reports at its end.
_SAID = frozenset(State) - {State.RUNNING, State.TOO_LARGE}


def _state(said: int, killed: State | None) -> State:
    """The end of a process that says ``said``; one that was killed, or says nothing, crashed."""
    if killed is State.TOO_LARGE:
        return killed
    if said not in _SAID:
        return killed or State.CRASHED
    return State(said)


def _wait_for(program: Program, file: int, deadline_s: int, file_bytes: int) -> State | None:
    """Return why the process was killed, None for one that ended by itself.

    It ends itself after so much time of a processor, and so does the limit that it is given. This
    one is the last, for a process that waits or that others keep from a processor. The process runs
    in an empty folder.
    """
    end = time.monotonic() + STARVED * deadline_s + GRACE_S
    seconds = str(deadline_s + GRACE_S)
    shared = f"/proc/self/fd/{file}"
    with tempfile.TemporaryDirectory(prefix="autogemm-") as folder:
        process = subprocess.Popen(
            [str(program.confine), seconds, str(file), str(program.executable), shared],
            pass_fds=(file,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={},
        )
        try:
            with watched_end(process) as has_ended:
                while time.monotonic() < end:
                    if has_ended(MEMORY_CHECK_S):
                        return None
                    if resident_bytes(process.pid) > MAX_MEMORY_BYTES + file_bytes:
                        return State.TOO_LARGE
            return State.TIMED_OUT
        finally:
            process.kill()
            process.wait()
