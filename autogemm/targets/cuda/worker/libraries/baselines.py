"""The baseline that kernels are compared with: the fastest here of all calls of cuBLAS.

`cublasSgemm` and `cublasGemmEx` pick one algorithm by a heuristic, which is not always the fastest:
`cublasLtMatmul` shows the heuristics' other proposals. All calls are timed once or twice, what is
clearly slower side by side with the fastest is left out, and what is near it and right takes part
in all rounds of the finals, where the fastest is chosen
(`autogemm.model.results.finals.fastest_call`).

FP32 calls must be as exact as FP32 is (`autogemm.targets.cuda.worker.problem.precision`). Parts of
K may be added up in C's own type, which for 16 bits can be too coarse: where no call is right,
proposals that add up in FP32 are asked for.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Call, Status
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.messages import KnownCalls
from autogemm.targets.cuda.worker.gpu.cublas import Cublas
from autogemm.targets.cuda.worker.gpu.cublas_lt import FP32_REDUCTION
from autogemm.targets.cuda.worker.gpu.timing import Method, Stopwatch, warm_up
from autogemm.targets.cuda.worker.libraries.cublas_calls import Baseline, CublasCalls
from autogemm.targets.cuda.worker.problem.prepared import (
    UNSURE_LAUNCH_US,
    Contestant,
    LibraryCalls,
    PreparedProblem,
)
from autogemm.targets.target import rounds_of

# The first pass times so many calls whatever it takes, the others while there is time.
LEAST_TIMED, FIRST_PASS_S = 10, 2.0
FIRST_SAMPLE_US, FIRST_SAMPLES = 250.0, 2
# A first launch may load code, which takes so long at most where it is worth knowing.
LOADING_US = 20_000.0
# Multiples of the fastest time: above the first a call is slower whenever it is timed, though a GPU
# at its power limit may have slowed down meanwhile; above the second it is side by side with the
# fastest, above the third after a few rounds: in finals one was 3 % faster that was as fast before.
MUCH_SLOWER, CLEARLY_SLOWER, NEAR = 1.5, 1.15, 1.05
# Calls that are timed side by side, checked against the reference, and in the finals, at most.
MOST_COMPARED, MOST_CHECKED, MOST_NEAR = 40, 24, 12
# Rounds in which calls are found not clearly slower, two where more take longer than that; in which
# they are found near; and in which a bench finds the one that stands for all.
COMPARED_ROUNDS, COMPARED_S, ROUNDS, NEAR_ROUNDS = 5, 0.5, 5, 40
TRIALS = 3


class NotHereError(Exception):
    """The library is not installed, or cannot do this problem; the message says what to do."""


def near_calls(known: KnownCalls | None, prepared: PreparedProblem, cublas: Cublas) -> LibraryCalls:
    """The calls of cuBLAS that are right and near the fastest here, it first; and all others.

    ``known`` is what a former worker found. Raises DeviceError where no call is right.
    """
    library = CublasCalls(prepared, cublas)
    if known is not None and known.problem == prepared.problem:
        return _as_before(prepared, library, known)
    selection = Selection(prepared, library.left_out)
    near = selection.near(library.all())
    if not near and not prepared.problem.dtype.has_fp32_products:
        near = selection.near(library.proposals(FP32_REDUCTION, " (FP32 reduction)"))
    if not near:
        raise DeviceError(_no_call(prepared.problem, library.left_out))
    return LibraryCalls(tuple(near), tuple(library.left_out))


def _no_call(problem: Problem, left_out: Sequence[Call]) -> str:
    """Why there is no baseline: a wrong result, or what cannot be called."""
    for one in left_out:
        if one.status is Status.WRONG_RESULT:
            return f"cuBLAS gives a wrong result here: {one.reason}"
    why = f": {left_out[0].reason}" if left_out else ""
    return f"cuBLAS has no call for {problem.label}{why}"


def fastest_near(prepared: PreparedProblem) -> Baseline:
    """The fastest of the near calls over many rounds: the one that stands for all in a bench.

    There one may be 3 % faster that was as fast as another before the GPU was as warm.
    """
    near = prepared.calls.near
    if len(near) > 1:
        launch_us = prepared.batch_us(near[0], 1)
        method = prepared.stopwatch_about(near[0], launch_us).method
        rounds = rounds_of(launch_us, NEAR_ROUNDS)
        relative = _relative(prepared.stopwatches(near, method), rounds)
        near = (near[relative.index(min(relative))],)
    fastest = near[0]
    assert isinstance(fastest, Baseline)
    return fastest


def fastest_of(prepared: PreparedProblem, contestants: Sequence[Contestant]) -> int:
    """The place of the fastest of a few, timed quickly; the first launch loads or compiles it."""
    launches_us = []
    for contestant in contestants:
        prepared.batch_us(contestant, 1)
        launches_us.append(prepared.batch_us(contestant, TRIALS))
    return launches_us.index(min(launches_us))


class Selection:
    """Finds the calls that are right and near the fastest; notes why others are left out."""

    def __init__(
        self,
        prepared: PreparedProblem,
        left_out: list[Call],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._prepared_problem, self._left_out, self._clock = prepared, left_out, clock

    def near(self, calls: Sequence[Baseline]) -> list[Baseline]:
        """These calls, the fastest first; empty where none is right."""
        warm = self._warmed_up(calls)
        if warm is None:
            return []
        method, callable_ones = warm
        right = self._right(callable_ones, method)
        while right:
            relative = _relative(self._prepared_problem.stopwatches(right, method), ROUNDS)
            order = sorted(zip(relative, right, strict=True), key=lambda pair: pair[0])
            least, fastest = order[0]
            # A call that adds up in a changing order may be right once and wrong then.
            if not self._is_right(fastest):
                right.remove(fastest)
                continue
            return list(self._kept(order, NEAR, MOST_NEAR, least))
        return []

    def _warmed_up(self, calls: Sequence[Baseline]) -> tuple[Method, Sequence[Baseline]] | None:
        """The timing method that fits the first callable one; that call and those behind it."""
        prepared = self._prepared_problem
        for place, call in enumerate(calls):
            try:
                launch_us = _warm_up(prepared, call)
            except DeviceError as error:
                self._leave_out(call, Status.REJECTED, str(error))
                continue
            method = prepared.stopwatch_about(call, launch_us, FIRST_SAMPLE_US).method
            return method, calls[place:]
        return None

    def _right(self, calls: Sequence[Baseline], method: Method) -> list[Baseline]:
        """The calls that are right and not clearly slower than another, the fastest first."""
        timed: list[tuple[float, Baseline]] = []
        checked: list[Baseline] = []
        fastest_us, begin = math.inf, self._clock()
        for number, call in enumerate(calls):
            if number >= LEAST_TIMED and self._clock() - begin > FIRST_PASS_S:
                reason = f"not timed: {number} calls before it took all the time"
                self._leave_out(call, Status.REJECTED, reason)
                continue
            try:
                launch_us = self._quick_us(call, method, MUCH_SLOWER * fastest_us)
            except DeviceError as error:
                self._leave_out(call, Status.REJECTED, str(error))
                continue
            # One that is wrong, however fast, must not make others look slow.
            if launch_us < fastest_us:
                if not self._is_right(call):
                    continue
                fastest_us = launch_us
                checked.append(call)
            timed.append((launch_us, call))
        timed.sort(key=lambda pair: pair[0])
        compared = list(self._kept(timed, MUCH_SLOWER, MOST_COMPARED, fastest_us))
        if not compared:
            return []
        watches = self._prepared_problem.stopwatches(compared, method)
        relative = _relative(watches, COMPARED_ROUNDS, self._clock)
        order = sorted(zip(relative, compared, strict=True), key=lambda pair: pair[0])
        # A call that is not checked yet may be wrong, and fast because of that.
        least = min(one for one, call in order if call in checked)
        kept = self._kept(order, CLEARLY_SLOWER, MOST_CHECKED, least)
        return [call for call in kept if call in checked or self._is_right(call)]

    def _quick_us(self, call: Baseline, method: Method, limit_us: float) -> float:
        """About how long a GEMM takes; launched no more often than that takes to see."""
        prepared = self._prepared_problem
        launch_us = prepared.batch_us(call, 1)
        if limit_us < launch_us <= limit_us + LOADING_US or launch_us < UNSURE_LAUNCH_US:
            launch_us = prepared.batch_us(call, 1)
        if launch_us >= UNSURE_LAUNCH_US:
            return launch_us
        # Alone, a short launch looks longer than it is: as long as this process takes for it.
        return min(prepared.stopwatches([call], method)[0].samples(FIRST_SAMPLES))

    def _kept(
        self, timed: Sequence[tuple[float, Baseline]], slower: float, most: int, least: float
    ) -> Iterable[Baseline]:
        """The first that take at most so many times as long as the least; of the others it is noted
        how many times as long they take.
        """
        for place, (taken, call) in enumerate(timed):
            if taken <= slower * least and place < most:
                yield call
            else:
                reason = f"{taken / least:.3f} times as long as the fastest before the finals"
                self._leave_out(call, Status.TOO_SLOW, reason)

    def _is_right(self, call: Baseline) -> bool:
        try:
            complaint = self._prepared_problem.check(call).complaint
        except DeviceError as error:
            complaint = str(error)
        if complaint:
            self._leave_out(call, Status.WRONG_RESULT, complaint)
        return not complaint

    def _leave_out(self, call: Baseline, status: Status, reason: str) -> None:
        self._left_out.append(Call(call.name, status, reason))


def _as_before(prepared: PreparedProblem, library: CublasCalls, known: KnownCalls) -> LibraryCalls:
    """The same calls by their names: the heuristics propose the same again."""
    calls = library.all()
    if any("reduction" in name for name in known.near):
        calls += library.proposals(FP32_REDUCTION, " (FP32 reduction)")
    by_name = {one.name: one for one in calls}
    near = tuple(by_name[name] for name in known.near if name in by_name)
    if not near:
        raise DeviceError(f"cuBLAS has no call any more that it had before: {known.near[0]}")
    _warm_up(prepared, near[0])
    return LibraryCalls(near, known.left_out)


def _warm_up(prepared: PreparedProblem, call: Baseline) -> float:
    return warm_up(lambda launches: prepared.batch_us(call, launches))


def _relative(
    stopwatches: Sequence[Stopwatch], num_rounds: int, clock: Callable[[], float] | None = None
) -> list[float]:
    """How long each takes as a multiple of what one of them takes in the same round, the median of
    the rounds: they are timed in turn, and what slows down all in a round says nothing.

    With a ``clock`` there are two rounds where they take longer than COMPARED_S.
    """
    begin = 0.0 if clock is None else clock()
    rounds: list[list[float]] = []
    while len(rounds) < num_rounds:
        if clock is not None and len(rounds) >= 2 and clock() - begin > COMPARED_S:
            break
        times = [one.samples(1)[0] for one in stopwatches]
        typical = statistics.median(times)
        rounds.append([time / typical for time in times])
    return [statistics.median(ratios) for ratios in zip(*rounds, strict=True)]
