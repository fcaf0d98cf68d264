"""A part of an explanation that cannot be given here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands where a result would; ``missing`` says why, and what to install."""

    missing: str
