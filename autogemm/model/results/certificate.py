"""The checks of a kernel before it is called a winner: their tools and results."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from annotated_types import MaxLen

from autogemm.support.limits import Amount, Line, LongText, Moment


class Verdict(StrEnum):
    """The result of a check. NOT_DONE says nothing about the kernel."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_DONE = "not done"


@dataclass(frozen=True, slots=True)
class Check:
    """One kind of check; ``tool`` with its version.

    ``what`` is what was looked at, what is wrong, or why nothing was done: one line.
    """

    name: Line
    verdict: Verdict
    what: LongText
    tool: Line = ""
    seconds: Amount = 0.0

    @property
    def line(self) -> str:
        """``memcheck passed (compute-sanitizer 2025.3): 384x768x112 nn f32``."""
        tool = f" ({self.tool})" if self.tool else ""
        return f"{self.name} {self.verdict}{tool}: {self.what}"


@dataclass(frozen=True, slots=True)
class Certificate:
    """All checks of one kernel on one GPU, and when they were made."""

    checks: Annotated[tuple[Check, ...], MaxLen(1000)]
    made_at: Moment

    @property
    def verdict(self) -> Verdict:
        """FAILED if any check failed, PASSED if at least one passed."""
        verdicts = {check.verdict for check in self.checks}
        for verdict in (Verdict.FAILED, Verdict.PASSED):
            if verdict in verdicts:
                return verdict
        return Verdict.NOT_DONE

    @property
    def reason(self) -> str:
        """The first failure in one line, empty if there is none."""
        failed = (check.line for check in self.checks if check.verdict is Verdict.FAILED)
        return next(failed, "")

    @property
    def summary(self) -> str:
        """``passed: finals, gpu, emulator; not done: memcheck``."""
        parts = []
        for verdict in Verdict:
            names = [check.name for check in self.checks if check.verdict is verdict]
            if names:
                parts.append(f"{verdict}: {', '.join(names)}")
        return "; ".join(parts)
