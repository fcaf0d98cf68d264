"""Ctrl-C as a wish that is granted between two steps, not in the middle of a transaction."""

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
    if threading.current_thread() is not threading.main_thread():
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
