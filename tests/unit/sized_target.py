"""A GPU on which another tile is best for each size, for sweeps and rules learned from them."""

import dataclasses
import math
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest
from fake_target import FakeCompiler, FakeTarget, tiny_family
from waiting import wait_until

from autogemm.model.config import Config
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import (
    Finals,
    FinalsEntry,
    Measurement,
    Outcome,
    Provenance,
    Status,
)
from autogemm.store import Store
from autogemm.support.errors import DeviceError
from autogemm.targets import MeasureOptions
from autogemm.tuning import Sweep, Sweeper, Swept, TuneRequest, tune


def sized_us(config: Config, problem: Problem) -> float:
    """BM = 16 is best for M up to 200, 32 up to 1000, 64 above; wrong by a factor of two: 20 %."""
    ideal = 16 if problem.m <= 200 else 32 if problem.m <= 1000 else 64
    steps = abs(math.log2(int(config["BM"]) / ideal))
    others = abs(int(config["BN"]) - 32) / 3 + 7 * (4 - int(config["U"]))
    return (100.0 + others) * 1.2**steps


class SizedTarget(FakeTarget):
    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        super().prepare(problem, options)
        self.problem = problem

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        outcome = super().measure(candidate, best_us)
        own_us = sized_us(candidate.config, self.problem)
        return dataclasses.replace(outcome, measurement=Measurement((own_us,), Provenance.MEASURED))

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        finals = super().finals(candidates, rounds, seed)
        entries = sorted(map(self._sized, finals.entries), key=lambda entry: entry.time_us)
        return dataclasses.replace(finals, entries=tuple(entries))

    def _sized(self, entry: FinalsEntry) -> FinalsEntry:
        assert entry.config is not None
        own_us = sized_us(entry.config, self.problem)
        ratio = 100.0 / own_us
        return dataclasses.replace(
            entry,
            samples_us=(own_us,) * len(entry.samples_us),
            ratio=ratio,
            ratio_low=ratio,
            ratio_high=ratio,
        )


class NotingCompiler(FakeCompiler):
    """Counts what it compiles ahead of a search."""

    num_ahead = 0

    def submit(self, source: KernelSource, arch: str) -> "Future[CompiledKernel]":
        self.num_ahead += threading.current_thread().name.startswith("ahead")
        return super().submit(source, arch)


class BusyTarget(SizedTarget):
    """Its GPU is busy until so many kernels were compiled meanwhile: by the time that it is ready
    for the first problem one, and for each that follows one more.
    """

    def __init__(self, compiler: NotingCompiler, num_followed: int) -> None:
        super().__init__()
        self._compiler, self._left = compiler, num_followed
        self.num_prepared = 0

    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        self.num_prepared += 1
        self._wait_for(self.num_prepared)
        super().prepare(problem, options)

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        if self._left:
            self._left -= 1
            self._wait_for(self.num_prepared + 1)
        return super().finals(candidates, rounds, seed)

    def _wait_for(self, count: int) -> None:
        wait_until(lambda: self._compiler.num_ahead >= count, f"{count} are compiled ahead")


def requests_for(folder: Path, sizes: Sequence[int]) -> list[TuneRequest]:
    family = tiny_family(folder / "tiny")
    return [
        TuneRequest(
            Problem(m, 512, 256),
            (family,),
            fix={"U": (4,), "ECHO": (0,)},
            sampler="exhaustive",
            finalists=2,
            rounds=3,
        )
        for m in sizes
    ]


def swept(
    requests: Sequence[TuneRequest],
    target: FakeTarget,
    store: Store,
    *,
    cross: bool = False,
    compiler: FakeCompiler | None = None,
) -> tuple[Sweep, list[str]]:
    """The sweep and what was told of it."""
    told: list[str] = []

    def on_swept(one: Swept) -> None:
        told.append(f"{one.problem.m} {'known' if one.is_known else 'tuned'} {one.reason}".strip())

    sweeper = Sweeper(
        target,  # type: ignore[arg-type]
        compiler or FakeCompiler(),  # type: ignore[arg-type]
        store,
        on_step=lambda step: lambda event: None,
        on_swept=on_swept,
    )
    sweep = sweeper.run(requests)
    return (sweeper.cross(sweep, requests[0]) if cross else sweep), told


def interrupted_run(store: Store, request: TuneRequest) -> int:
    """A run whose GPU is lost at its fifth config."""
    seen = []

    def fault(config: object) -> Status | BaseException | None:
        seen.append(config)
        return DeviceError("gone") if len(seen) == 5 else None

    with pytest.raises(DeviceError):
        tune(request, SizedTarget(fault), FakeCompiler(), store)  # type: ignore[arg-type]
    return store.runs()[0].run_id
