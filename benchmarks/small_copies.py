"""The time of a copy of few bytes on a GPU, launch by launch as kernels of such a size are timed.

A copy of gigabytes shows what the memory reaches. One of 15 MB takes about as long as a launch: no
kernel that is launched for so few bytes comes near that rate.
"""

import math
import statistics
from collections.abc import Iterable
from typing import Any

from autogemm.targets.cuda.ceilings import ceilings_source

THREADS = 256
# The bytes that a block of ceilings.cu copies at a time.
STEP_BYTES = 16 * 4 * THREADS
# Copies go through so many times L2's size, so that all of them come from memory.
L2_SIZES = 16
SAMPLES = 15
# Of one sample, and to bring clocks up before the first.
SAMPLE_US, WARM_UP_US = 2_000.0, 200_000.0


def copies_us(moved: Iterable[int]) -> dict[int, float]:
    """Microseconds of a copy for each number of bytes, half of which are read, half written: the
    median of graphs of launches that follow one another, each of other memory.
    """
    import cupy

    device = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    room = L2_SIZES * device["l2CacheSize"]
    source, target = (cupy.ones(room, cupy.uint8) for _ in range(2))
    kernel = cupy.RawModule(code=ceilings_source().text).get_function("copy_kernel")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        return {
            one: _copy_us(cupy, kernel, stream, (target.data.ptr, source.data.ptr), room, one)
            for one in moved
        }


def _copy_us(  # noqa: PLR0913, PLR0917  # what a copy is made of
    cupy: Any, kernel: Any, stream: Any, places: tuple[int, int], room: int, moved: int
) -> float:
    num_bytes = math.ceil(moved / 2 / STEP_BYTES) * STEP_BYTES
    places_in_room = room // num_bytes
    launches = max(places_in_room, 2)
    stream.begin_capture()
    for number in range(launches):
        offset = number % places_in_room * num_bytes
        to, at = (cupy.uint64(place + offset) for place in places)
        kernel((num_bytes // STEP_BYTES,), (THREADS,), (to, at, cupy.int32(num_bytes // 16)))
    graph = stream.end_capture()

    def sample_us(times: int) -> float:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        for _ in range(times):
            graph.launch(stream)
        end.record(stream)
        end.synchronize()
        return 1e3 * float(cupy.cuda.get_elapsed_time(begin, end)) / times

    graph_us = sample_us(1)
    sample_us(math.ceil(WARM_UP_US / graph_us))
    times = math.ceil(SAMPLE_US / graph_us)
    return statistics.median(sample_us(times) for _ in range(SAMPLES)) / launches
