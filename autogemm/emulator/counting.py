"""Lines and branches of an emitted source that ran, counted by GCC and read by gcov.

The kernel's process may write no file: it leaves what gcov expects in one in its exchange file
(shim/counts.cpp).
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autogemm.emulator.toolchain import Build, Toolchain
from autogemm.support.errors import CompilerMissingError

# __gcov_info_to_gcda() and so counts without files are in libgcov from here on.
OLDEST_COUNTING_GXX = 12
# Bytes of counts: more than the largest kernel has.
COUNTS_CAPACITY = 1 << 22
GCOV_S = 60


@dataclass(frozen=True, slots=True)
class LineCount:
    """Counts of a line of the source, and of each way on from it where there are several.

    ``function`` is the line on which its function begins. Instances of a template count together.
    """

    line: int
    function: int
    count: int
    branches: tuple[int, ...] = ()

    def plus(self, other: "LineCount") -> "LineCount":
        """The sum of two counts of the same line.

        Ways are added where there are as many of them; else all are kept.
        """
        if len(self.branches) == len(other.branches):
            branches = tuple(map(sum, zip(self.branches, other.branches, strict=True)))
        else:
            branches = self.branches + other.branches
        return LineCount(self.line, self.function, self.count + other.count, branches)


Counts = Mapping[int, LineCount]


def added(counts: Iterable[LineCount]) -> dict[int, LineCount]:
    """Return counts by line, those of the same line added, in the order of the source."""
    found: dict[int, LineCount] = {}
    for one in counts:
        before = found.get(one.line)
        found[one.line] = one if before is None else before.plus(one)
    return dict(sorted(found.items()))


def find_gcov(toolchain: Toolchain) -> str:
    """Return the gcov that belongs to a g++.

    Raises CompilerMissingError when there is none, or the g++ is too old to count without files.
    """
    if toolchain.major < OLDEST_COUNTING_GXX:
        raise CompilerMissingError(
            f"counting lines needs g++ {OLDEST_COUNTING_GXX} or newer, {toolchain.gxx} is "
            f"{toolchain.version!r}: name another one in AUTOGEMM_GXX"
        )
    gxx = Path(toolchain.gxx)
    names = [str(gxx.with_name(gxx.name.replace("g++", "gcov"))), f"gcov-{toolchain.major}", "gcov"]
    for name in names:
        if Path(name).name != gxx.name and (found := shutil.which(name)):
            return found
    raise CompilerMissingError(
        f"counting lines needs gcov, which comes with {toolchain.gxx}: install both"
    )


def counted(built: Build, counts: bytes, gcov: str) -> dict[int, LineCount]:
    """Return the counts of a run by line of the source, of the lines that the compiler kept.

    Raises CompilerMissingError for a gcov that does not know this compiler's format.
    """
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "kernel.gcno"
        notes.write_bytes(built.notes.read_bytes())
        notes.with_suffix(".gcda").write_bytes(counts)
        answer = subprocess.run(
            [gcov, "--json-format", "--branch-probabilities", "--stdout", notes.name],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=GCOV_S,
        )
    try:
        files = json.loads(answer.stdout)["files"]
    except (ValueError, KeyError) as error:
        said = (answer.stderr.strip().splitlines() or ["nothing"])[0]
        raise CompilerMissingError(
            f"{gcov} cannot read what {built.executable} counted and says {said}: install the gcov "
            "of the same version as g++"
        ) from error
    own = (one for one in files if Path(one["file"]).name == built.source_path.name)
    return added(count for one in own for count in _counts_of(one))


def _counts_of(file: dict[str, Any]) -> Iterable[LineCount]:
    begins = {one["name"]: int(one["start_line"]) for one in file["functions"]}
    for one in file["lines"]:
        ways = tuple(int(way["count"]) for way in one["branches"] if not way["throw"])
        begin = begins.get(one.get("function_name", ""), 0)
        yield LineCount(int(one["line_number"]), begin, int(one["count"]), ways)
