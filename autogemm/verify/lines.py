"""Lines and branches of emitted sources that a config's edge cases run, and those that none does.

A config has many sources: edges and vectors come and go with the problem. A line of one is the same
line in another where it stands in the same function, in the same place among its equals.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from autogemm.codegen import render
from autogemm.emulator import Emulator, LineCount
from autogemm.space import Family, launch_plan
from autogemm.verify.cases import Case

# The name of a line in all sources of a config: its function's first line, its own text, and how
# many such lines of the function come before it.
Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CaseLines:
    """How often a case ran each line of its source, and the processor's seconds that it took."""

    case: Case
    text: str
    counts: Mapping[int, LineCount]
    seconds: float


@dataclass(frozen=True, slots=True)
class Unreached:
    """Lines ``first`` to ``last`` of a source that no case ran, or a branch taken one way only.

    ``text`` is the line on which it depends: the condition before the lines, where there is one.
    """

    first: int
    last: int
    text: str
    is_branch: bool

    def __str__(self) -> str:
        lines = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{lines}{', one way only' if self.is_branch else ''} (`{self.text}`)"


@dataclass(frozen=True, slots=True)
class Reach:
    """Lines and branches of all sources of a config that its cases run.

    ``unreached`` has the place of each that none runs, in the first source that has it, of which
    ``text`` is one line and all the lines. ``num_needed`` cases, in their order, reach as much as
    all ``num_cases``.
    """

    num_sources: int
    num_lines: int
    num_reached: int
    num_branches: int
    num_taken: int
    num_cases: int
    num_needed: int
    unreached: tuple[Unreached, ...]

    @property
    def message(self) -> str:
        """One line: how many ran, and what did not."""
        said = f"{self.num_reached} of {self.num_lines} lines of the kernel ran"
        if not self.unreached:
            return said
        return f"{said}; not reached: {', '.join(map(str, self.unreached))}"


def count_lines(family: Family, emulator: Emulator, cases: Iterable[Case]) -> Iterator[CaseLines]:
    """Run cases one by one in builds that count, and yield their lines in the order of the cases.

    Raises KernelCompileError, UsageError and CompilerMissingError for what cannot be run.
    """

    def count(case: Case) -> CaseLines:
        start = time.perf_counter()
        source = render(family, case.config, case.problem)
        plan = launch_plan(family, case.config, case.problem, few_blocks=True)
        counts = emulator.count_lines(source, plan, case.problem, extremes=case.extremes)
        return CaseLines(case, source.text, counts, time.perf_counter() - start)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(count, cases)


def reach_of(cases: Sequence[CaseLines]) -> Reach:
    """Return what the cases of one config ran of its sources."""
    texts = list(dict.fromkeys(case.text for case in cases))
    total: dict[Place, LineCount] = {}
    first_of: dict[Place, tuple[int, int]] = {}
    needed = 0
    for number, case in enumerate(cases, 1):
        before = len(total), _amount(total.values())
        for place, count in named(case.text, case.counts).items():
            known = total.get(place)
            total[place] = count if known is None else known.plus(count)
            first_of.setdefault(place, (texts.index(case.text), count.line))
        if (len(total), _amount(total.values())) != before:
            needed = number
    ways = [way for one in total.values() for way in one.branches]
    return Reach(
        len(texts),
        len(total),
        sum(one.count > 0 for one in total.values()),
        len(ways),
        sum(way > 0 for way in ways),
        len(cases),
        needed,
        _unreached(texts, total, first_of),
    )


def named(text: str, counts: Mapping[int, LineCount]) -> dict[Place, LineCount]:
    """Return counts by the names of their lines; lines of nothing but brackets are left out."""
    rows = text.splitlines()
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[Place, LineCount] = {}
    for line, count in counts.items():
        row = rows[line - 1].strip()
        if not row.strip("{}();, "):
            continue
        name = rows[count.function - 1].strip() if count.function else "", row
        found[*name, seen[name]] = count
        seen[name] += 1
    return found


def _amount(counts: Iterable[LineCount]) -> int:
    """Return how many lines were reached and ways taken."""
    return sum((one.count > 0) + sum(way > 0 for way in one.branches) for one in counts)


def _unreached(
    texts: Sequence[str],
    total: Mapping[Place, LineCount],
    first_of: Mapping[Place, tuple[int, int]],
) -> tuple[Unreached, ...]:
    by_text: defaultdict[int, dict[int, LineCount]] = defaultdict(dict)
    for place, count in total.items():
        index, line = first_of[place]
        by_text[index][line] = count
    return tuple(
        one
        for index in sorted(by_text)
        for one in _of_source(texts[index].splitlines(), by_text[index])
    )


def _of_source(rows: Sequence[str], counts: Mapping[int, LineCount]) -> Iterator[Unreached]:
    """Yield ranges of lines that did not run, and branches beside them that go one way only."""
    lines = sorted(counts)
    at = 0
    while at < len(lines):
        line, count = lines[at], counts[lines[at]]
        end = at + 1
        while end < len(lines) and not counts[lines[end]].count:
            end += 1
        is_decided = count.count > 0 and not all(count.branches)
        if not count.count:
            yield Unreached(line, lines[end - 1], rows[line - 1].strip(), False)
            at = end
        elif is_decided and end > at + 1:
            yield Unreached(lines[at + 1], lines[end - 1], rows[line - 1].strip(), False)
            at = end
        else:
            if is_decided:
                yield Unreached(line, line, rows[line - 1].strip(), True)
            at += 1
