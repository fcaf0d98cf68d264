"""Times of calls in PyTorch's process, in turn, as CUDA graphs of some milliseconds or as calls."""

import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any

SAMPLE_US = 4000.0


def interleaved(
    calls: Mapping[str, Callable[[], Any]], rounds: int, *, captured: bool = True
) -> dict[str, list[float]]:
    """Microseconds of each call in each round; the order within a round is random.

    Unless ``captured``, each sample is one call from the host.
    """
    import torch

    runs = {name: graph_of(call) if captured else (call, 1) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order, begin, end = list(calls), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    shuffled = random.Random(1)
    for _ in range(rounds):
        shuffled.shuffle(order)
        for name in order:
            run, launches = runs[name]
            # Untimed: while it runs, the host queues all that is timed.
            run()
            begin.record()
            run()
            end.record()
            end.synchronize()
            samples[name].append(begin.elapsed_time(end) * 1e3 / launches)
    return samples


def graph_of(call: Callable[[], Any]) -> tuple[Callable[[], Any], int]:
    """The replay of a CUDA graph of so many calls that it takes about `SAMPLE_US`, and their
    number. Raises RuntimeError for calls that launch on another stream: the graph would be empty.
    """
    import torch

    def microseconds(work: Callable[[], Any]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    launches = max(1, round(SAMPLE_US / max(1.0, min(microseconds(call) for _ in range(5)))))
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.cuda.graph(graph):
            for _ in range(launches):
                call()
    if empty := [one for one in caught if "Graph is empty" in str(one.message)]:
        raise RuntimeError(str(empty[0].message))
    return graph.replay, launches
