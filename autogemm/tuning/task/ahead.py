"""What a search needs beside its GPU, made while the GPU is busy with something else."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, zip_longest
from threading import Semaphore

from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.kernel import CompiledKernel
from autogemm.model.results.outcome import Provenance
from autogemm.support.errors import AutogemmError
from autogemm.targets import Target
from autogemm.tuning.task.build import Builder
from autogemm.tuning.task.request import TuneRequest
from autogemm.tuning.task.spaces import Spaces, spaces_for

# Calls of cuBLAS and finalists are timed meanwhile: the thread that queues their launches must not
# look for a core.
SHARE_OF_CORES = 0.5
# How soon a thread that waits for the compiler notices that it need not go on.
TICK_S = 0.1


class Ahead:
    """The spaces of a request, and its seeds on their way through the compiler.

    Both begin in a thread of their own: while the GPU is made ready for the problem, or while it
    holds the finals of the problem before. The search takes its first candidates from the cubin
    cache then. A target that replays times is asked for its spaces once it is ready, and compiles
    nothing.
    """

    def __init__(self, request: TuneRequest, target: Target, compiler: Compiler | None) -> None:
        self.request = request
        self._target, self._compiler = target, compiler
        self._stopped = False
        self._begun: list[Future[CompiledKernel]] = []
        self._threads: ThreadPoolExecutor | None = None
        if target.provenance is Provenance.MEASURED:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="ahead")
            self._made = self._threads.submit(spaces_for, request, target)
            self._threads.submit(self._compile_seeds)

    def spaces(self) -> Spaces:
        """What `spaces_for` returns, and raises, for the request; the target is ready for it."""
        if self._threads is None:
            return spaces_for(self.request, self._target)
        return self._made.result()

    def close(self) -> None:
        """Begin nothing more, and drop what waits for the compiler. May be called twice."""
        self._stopped = True
        for one in list(self._begun):
            one.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _compile_seeds(self) -> None:
        if self._compiler is None or not self._target.needs_cubin or self._made.exception():
            return
        spaces, request = self._made.result(), self.request
        device = self._target.device
        builder = Builder(spaces.families, request.problem, device, self._compiler)
        room = Semaphore(max(1, int(SHARE_OF_CORES * self._compiler.threads)))
        for config in islice(seeds_in_turn(spaces), request.trials):
            while not room.acquire(timeout=TICK_S) and not self._stopped:
                pass
            if self._stopped:
                return
            try:
                compiling = builder.start(builder.render(config)).compiling
            except AutogemmError:
                compiling = None  # the search meets it again when it is its turn
            if compiling is None:
                room.release()
            else:
                self._begun.append(compiling)
                compiling.add_done_callback(lambda _: room.release())


def seeds_in_turn(spaces: Spaces) -> Iterator[Config]:
    """One seed of each family after the other, as their search asks for them."""
    by_family = [[space.config(index) for index in space.seeds] for space in spaces.spaces]
    for turn in zip_longest(*by_family):
        yield from (config for config in turn if config is not None)


class Begun:
    """What has begun for the next request, one at most."""

    def __init__(self) -> None:
        self._ahead: Ahead | None = None

    def begin(self, request: TuneRequest, target: Target, compiler: Compiler | None) -> None:
        """Begin with the request, unless there is one already."""
        if self._ahead is None:
            self._ahead = Ahead(request, target, compiler)

    def take(self, request: TuneRequest) -> Ahead | None:
        """What has begun for this request, which the caller closes; anything else is closed."""
        if self._ahead is None or self._ahead.request != request:
            self.close()
            return None
        ahead, self._ahead = self._ahead, None
        return ahead

    def close(self) -> None:
        """Give up what has begun. May be called twice."""
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = None
