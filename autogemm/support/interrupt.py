"""Ctrl-C between two steps, not in the middle of one; being told to end is the same."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

# A job scheduler, a service manager or a closing terminal sends them.
_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_received: list[int] = []


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP do what Ctrl-C does, unless they are ignored (nohup)."""

    def on_end(signum: int, frame: FrameType | None) -> None:
        _received.append(signum)
        as_ctrl_c = signal.getsignal(signal.SIGINT)
        if callable(as_ctrl_c):
            as_ctrl_c(signal.SIGINT, frame)
        else:
            raise KeyboardInterrupt

    for number in _ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, on_end)


def interrupted_code() -> int:
    """Return the exit code of a program that was interrupted, as shells report it: 130 for Ctrl-C,
    143 for SIGTERM, 129 for SIGHUP.
    """
    return 128 + (_received[0] if _received else signal.SIGINT)


class StopRequest(threading.Event):
    """Set when a search shall end; ``by_user`` when Ctrl-C was the reason."""

    by_user = False

    def set_by_user(self) -> None:
        """Set it as Ctrl-C does."""
        self.by_user = True
        self.set()


class RemoteCtrlC:
    """Ctrl-C for what works in another thread than the main one, or in another process.

    `press` sets every stop request that is made under `heeding`, now and later.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: set[StopRequest] = set()
        self.pressed = False

    def press(self) -> None:
        """Ask all to stop. May be called twice, from any thread."""
        with self._lock:
            self.pressed = True
            for request in self._requests:
                request.set_by_user()

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Let this thread's stop requests heed it."""
        token = _remote.set(self)
        try:
            yield
        finally:
            _remote.reset(token)

    @contextmanager
    def watching(self, request: StopRequest) -> Iterator[None]:
        """Let one request heed it."""
        with self._lock:
            self._requests.add(request)
            if self.pressed:
                request.set_by_user()
        try:
            yield
        finally:
            with self._lock:
                self._requests.remove(request)


_remote: ContextVar[RemoteCtrlC | None] = ContextVar("remote Ctrl-C", default=None)


@contextmanager
def stop_on_ctrl_c() -> Iterator[StopRequest]:
    """A stop request that the first Ctrl-C sets; the second raises KeyboardInterrupt at once.

    Outside the main thread Ctrl-C belongs to other code: there a `RemoteCtrlC` sets it, or nothing.
    """
    request = StopRequest()
    if not _is_ours():
        remote = _remote.get()
        if remote is None:
            yield request
            return
        with remote.watching(request):
            yield request
        return

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        if request.by_user:
            raise KeyboardInterrupt
        request.set_by_user()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield request
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """Delay the effect of Ctrl-C to the end of the block; a second one is not held back.

    For transactions. KeyboardInterrupt in the middle of one, between a statement and the note of
    it, leaves a connection that is never ended, and with it the lock that the clean-up waits for.
    """
    before = signal.getsignal(signal.SIGINT)
    # SIG_IGN and SIG_DFL raise nothing; None was not set by Python.
    if not _is_ours() or not callable(before):
        yield
        return
    held = False

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal held
        if held:
            before(signum, frame)
        held = True

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            before(signal.SIGINT, None)


def _is_ours() -> bool:
    # Python runs handlers of signals in the main thread alone.
    return threading.current_thread() is threading.main_thread()
