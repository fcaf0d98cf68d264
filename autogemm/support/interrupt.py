"""Ctrl-C between two steps, not in the middle of one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Wish(threading.Event):
    """Set when a search shall end; ``by_user`` when Ctrl-C was the reason."""

    by_user = False


@contextmanager
def wish_to_stop() -> Iterator[Wish]:
    """The wish is set by the first Ctrl-C; the second raises KeyboardInterrupt at once.

    Outside the main thread Ctrl-C is somebody else's: the wish stays unset.
    """
    wish = Wish()
    if not _is_ours():
        yield wish
        return

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        if wish.by_user:
            raise KeyboardInterrupt
        wish.by_user = True
        wish.set()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def ctrl_c_held_back() -> Iterator[None]:
    """What Ctrl-C does is done at the end; a second one is not held back.

    For transactions. KeyboardInterrupt in the middle of one, between a statement and the note of
    it, leaves a connection that nobody ends, and with it the lock that the clean-up waits for.
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
