"""What a compiler's process is asked, and its answer when it is no build. Pickled."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A text, the file name that messages show, and the compiler's options."""

    source: str
    name: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildRefused:
    """One of our own errors, by its class name in autogemm.support.errors."""

    error: str
    message: str
