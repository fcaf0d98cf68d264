"""Ctrl-C as a wish that is granted between two steps, not in the middle of a transaction."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def wish_to_stop() -> Iterator[threading.Event]:
    """The event is set by the first Ctrl-C; the second raises KeyboardInterrupt at once.

    Outside the main thread Ctrl-C is somebody else's: the event stays unset.
    """
    wish = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        if wish.is_set():
            raise KeyboardInterrupt
        wish.set()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, before)
