"""Seconds by phase of what is done again and again: where the time goes."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Phases:
    """Adds up seconds by the name of a phase. Several threads may add."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @property
    def seconds(self) -> dict[str, float]:
        """The sums, in the order in which phases were first met."""
        with self._lock:
            return dict(self._seconds)

    def add(self, name: str, seconds: float) -> None:
        """Add to one phase."""
        with self._lock:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def add_all(self, seconds: Mapping[str, float]) -> None:
        """Add to several."""
        for name, own in seconds.items():
            self.add(name, own)

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Add the time of the block, also of one that raises."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - began)
