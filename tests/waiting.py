"""Tests wait for what they can see, never for a time in which it should have happened."""

import time
from collections.abc import Callable
from pathlib import Path

# Far longer than anything here takes on a busy machine: only a test that fails waits for so long.
PATIENCE_S = 100.0


def wait_until(is_so: Callable[[], object], what: str) -> None:
    """Returns once it is so; fails, and says ``what`` should be, if it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.005)


def has_ended(pid: int) -> bool:
    """Whether the process is gone, or only waits for its parent to ask how it ended."""
    process = Path(f"/proc/{pid}")
    try:
        stat = (process / "stat").read_text()
        num_threads = len(list((process / "task").iterdir()))
    except OSError:
        return True
    # The first thread may end before the others; its parent is told behind the last one.
    return stat.rsplit(")", 1)[1].split()[0] in {"Z", "X"} and num_threads == 1
