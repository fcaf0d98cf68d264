"""``autogemm db check --fail-on``: a performance gate, as an exit code and a JUnit file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from xml.etree.ElementTree import Element, SubElement, tostring

from autogemm.cli.files import require_output, write_output
from autogemm.model.results.change import Change
from autogemm.support.errors import AutogemmError, NotFoundError, UsageError
from autogemm.tuning import Rechecked

BEGINNING = "<?xml version='1.0' encoding='utf-8'?>\n<testsuites"
# Characters that XML 1.0 cannot contain, not even escaped.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class FailOn(StrEnum):
    """The winners that fail the gate."""

    SLOW = "slow"
    """Fail winners that are shown to be slower."""
    MOVED = "moved"
    """Fail winners that are shown to be slower or faster."""


class End(StrEnum):
    """The verdict of the gate on one winner."""

    PASSED = "passed"
    FAILED = "failed"
    UNCLEAR = "skipped"


@dataclass(frozen=True, slots=True)
class Gate:
    """Fails winners that moved by more than ``threshold``, a share: 0.02 is 2 %.

    A winner that does not run any more always fails. ``junit`` is the file to write, if any.
    """

    fail_on: FailOn | None = None
    threshold: float = 0.0
    junit: str | None = None
    force: bool = False

    def require(self) -> None:
        """Raise UsageError for options that do not fit, or a file that cannot be written later."""
        if self.threshold and self.fail_on is None:
            raise UsageError("--threshold goes with --fail-on: slow or moved")
        if self.junit:
            require_output(self.junit, force=self.force, ours=BEGINNING)

    def end(self, rechecked: Rechecked) -> End:
        """Judge a winner by its whole interval: AMBG is no evidence, and is skipped."""
        compared = rechecked.compared
        if compared is None:
            return End.FAILED
        if compared.low is None or compared.high is None or compared.change is Change.AMBG:
            return End.UNCLEAR
        is_slow = compared.change is Change.SLOW and compared.high < 1 - self.threshold
        is_fast = compared.change is Change.FAST and compared.low > 1 + self.threshold
        failed = is_slow or (is_fast and self.fail_on is FailOn.MOVED)
        return End.FAILED if failed else End.PASSED

    def finish(self, checked: Sequence[Rechecked], num_stored: int) -> None:
        """Write the file, then raise AutogemmError if a winner failed, or if none is stored."""
        if self.fail_on is not None and not num_stored:
            raise NotFoundError("no stored winner matches: a gate needs a winner to compare with")
        ends = [self.end(one) for one in checked]
        if self.junit:
            content = junit_xml(checked, ends)
            write_output(self.junit, content, force=self.force, ours=BEGINNING)
        failed = [_name(one) for one, end in zip(checked, ends, strict=True) if end is End.FAILED]
        if failed and self.fail_on is not None:
            which = "slow" if self.fail_on is FailOn.SLOW else "moved"
            raise AutogemmError(
                f"{len(failed)} of {len(ends)} winners {which} by more than "
                f"{100 * self.threshold:g} % or not running: {', '.join(failed[:10])}"
                + (" ..." if len(failed) > 10 else "")
            )


def junit_xml(checked: Sequence[Rechecked], ends: Sequence[End]) -> bytes:
    """A test suite with a case for each winner, in the format that CI servers read."""
    counts = {
        "tests": str(len(ends)),
        "failures": str(ends.count(End.FAILED)),
        "errors": "0",
        "skipped": str(ends.count(End.UNCLEAR)),
    }
    root = Element("testsuites", counts)
    suite = SubElement(root, "testsuite", {"name": "autogemm db check", **counts})
    for one, end in zip(checked, ends, strict=True):
        gpu = _clean(one.winner.row.device.name)
        case = SubElement(suite, "testcase", {"classname": gpu, "name": _name(one)})
        says = _clean(_says(one))
        if end is End.FAILED:
            SubElement(case, "failure", {"message": says})
        elif end is End.UNCLEAR:
            SubElement(case, "skipped", {"message": says})
        else:
            SubElement(case, "system-out").text = says
    content: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _name(one: Rechecked) -> str:
    row = one.winner.row
    return _clean(f"{row.problem.label} {row.family}")


def _says(one: Rechecked) -> str:
    compared, entry = one.compared, one.entry
    if compared is None or entry is None:
        return f"does not run: {one.reason}"
    interval = f" [{compared.low:.4f}, {compared.high:.4f}]" if compared.low is not None else ""
    return (
        f"{compared.change}: {compared.ratio:.4f}{interval} times as fast as before by {one.by}; "
        f"{one.winner.row.time_us:.4g} us then, {entry.time_us:.4g} us now"
    )


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("?", text)
