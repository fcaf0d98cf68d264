"""Python's search for garbage in cycles, for commands that leave little of it."""

import gc


def collect_rarely() -> None:
    """Look for cycles after 100,000 new objects, not 700.

    While SQLAlchemy is imported and rows are read Python looks hundreds of times and finds nearly
    none: a seventh of a short command.
    """
    gc.set_threshold(100_000)
