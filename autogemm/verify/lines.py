"""Lines and branches of emitted sources that a config's edge cases run, and those that none does.

A config has many sources: edges and vectors come and go with the problem. Each is asked for its own
lines. A line of one is the same line in another where it stands in the same function, in the same
place among its equals: what one source alone does not run is told from what none does.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autogemm.codegen import render
from autogemm.emulator import Emulator, LineCount, added
from autogemm.space import Family, launch_plan
from autogemm.verify.cases import Case

# The name of a line in all sources of a config: its function's first line, its own text, and how
# many such lines of the function come before it.
Place = tuple[str, str, int]
Counts = Mapping[int, LineCount]
# Lines of these alone make no statement.
BRACKETS = "{}();, "


@dataclass(frozen=True, slots=True)
class CaseLines:
    """Counts of the lines of a case's source, and the seconds that it took."""

    case: Case
    text: str
    counts: Counts
    seconds: float


@dataclass(frozen=True, slots=True)
class Unreached:
    """Lines ``first`` to ``last`` of a source that no case ran, or a branch taken one way only.

    ``text`` is the line on which it depends: the condition before the lines, where there is one.
    ``num_sources`` of the config have it; ``problem`` is one that is given the source in which the
    lines have these numbers. With ``is_everywhere`` no source runs it, else some do.
    """

    first: int
    last: int
    text: str
    is_branch: bool
    is_everywhere: bool
    num_sources: int
    problem: str

    def __str__(self) -> str:
        lines = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{lines}{', one way only' if self.is_branch else ''} (`{self.text}`)"


@dataclass(frozen=True, slots=True)
class Reach:
    """Lines of the sources of a config, ways on from branches, and how many of each were run.

    ``cover`` are problems whose cases run as much as all of them, those first that run most that
    is new in a second. ``unreached`` begins with what no source runs.
    """

    num_cases: int
    num_sources: int
    num_lines: int
    num_reached: int
    num_ways: int
    num_taken: int
    cover: tuple[str, ...]
    unreached: tuple[Unreached, ...]

    @property
    def message(self) -> str:
        """One line: how many lines ran, and which did not."""
        kernel = "the kernel" if self.num_sources == 1 else f"{self.num_sources} sources"
        said = f"{self.num_reached} of {self.num_lines} lines of {kernel} ran"
        missed = [str(one) for one in self.unreached if not one.is_branch]
        return f"{said}; not reached: {', '.join(missed)}" if missed else said


def counting(family: Family, emulator: Emulator) -> Callable[[Case], CaseLines]:
    """Return what runs a case in a build that counts.

    It raises KernelCompileError, UsageError and CompilerMissingError for what cannot be run.
    """

    def count(case: Case) -> CaseLines:
        start = time.perf_counter()
        source = render(family, case.config, case.problem)
        plan = launch_plan(family, case.config, case.problem, few_blocks=True)
        counts = emulator.count_lines(source, plan, case.problem, extremes=case.extremes)
        return CaseLines(case, source.text, counts, time.perf_counter() - start)

    return count


def reach_of(cases: Sequence[CaseLines]) -> Reach:
    """Return what the cases of one config run of each of its sources."""
    of_text: defaultdict[str, list[CaseLines]] = defaultdict(list)
    for case in cases:
        of_text[case.text].append(case)
    sources = [
        _Source(text, own[0].case.problem.label, added(_code(text, own)))
        for text, own in of_text.items()
    ]
    counts = [one for source in sources for one in source.counts.values()]
    ways = [way for one in counts for way in one.branches]
    return Reach(
        len(cases),
        len(sources),
        len(counts),
        sum(one.count > 0 for one in counts),
        len(ways),
        sum(way > 0 for way in ways),
        tuple(_cover(cases)),
        _unreached(sources),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """A source, a problem that is given it, and how often its lines ran."""

    text: str
    problem: str
    counts: Counts

    @property
    def rows(self) -> list[str]:
        return self.text.splitlines()

    def names(self) -> dict[int, Place]:
        rows, found = self.rows, {}
        seen: Counter[tuple[str, str]] = Counter()
        for line, count in self.counts.items():
            name = (
                rows[count.function - 1].strip() if count.function else "",
                rows[line - 1].strip(),
            )
            found[line] = (*name, seen[name])
            seen[name] += 1
        return found


def _code(text: str, cases: Sequence[CaseLines]) -> Iterator[LineCount]:
    """Yield all counts of a text's cases but those of lines that are nothing but brackets."""
    rows = text.splitlines()
    for case in cases:
        yield from (one for one in case.counts.values() if rows[one.line - 1].strip(BRACKETS))


def _cover(cases: Sequence[CaseLines]) -> Iterator[str]:
    """Yield problems that together run what all cases run, as a greedy cover of sets chooses."""
    left = {number: _named_reach(case) for number, case in enumerate(cases)}
    seen: set[tuple[Place, int]] = set()
    while left:
        best = max(left, key=lambda number: len(left[number] - seen) / cases[number].seconds)
        new = left.pop(best) - seen
        if not new:
            left = {number: has for number, has in left.items() if has - seen}
            continue
        seen |= new
        yield cases[best].case.problem.label


def _named_reach(case: CaseLines) -> set[tuple[Place, int]]:
    """Return the lines (-1) and ways (0, 1, ...) that a case ran, by names."""
    source = _Source(case.text, "", case.counts)
    return {
        (name, way)
        for line, name in source.names().items()
        for way, count in enumerate((case.counts[line].count, *case.counts[line].branches), -1)
        if count
    }


def _unreached(sources: Sequence[_Source]) -> tuple[Unreached, ...]:
    total: dict[Place, LineCount] = {}
    names = [source.names() for source in sources]
    for source, own in zip(sources, names, strict=True):
        for line, name in own.items():
            known, count = total.get(name), source.counts[line]
            total[name] = count if known is None else known.plus(count)
    found: dict[tuple[Place, bool], Unreached] = {}
    for source, own in zip(sources, names, strict=True):
        for one in _of_source(source):
            among = [total[own[line]] for line in own if one.first <= line <= one.last]
            never = any(not (all(c.branches) if one.is_branch else c.count) for c in among)
            key = own[one.first], one.is_branch
            known_one = found.get(key, replace(one, is_everywhere=never))
            found[key] = replace(known_one, num_sources=known_one.num_sources + 1)
    return tuple(sorted(found.values(), key=lambda one: (not one.is_everywhere, one.is_branch)))


def _of_source(source: _Source) -> Iterator[Unreached]:
    """Yield ranges of lines that did not run, and branches before others that go one way only."""
    counts, rows = source.counts, source.rows
    lines = sorted(counts)
    ran = [counts[line].count > 0 for line in lines]
    at = 0
    while at < len(lines):
        end = next((other for other in range(at + 1, len(lines)) if ran[other]), len(lines))
        condition, first = lines[at], lines[at]
        is_branch = ran[at] and not all(counts[condition].branches)
        if is_branch and end > at + 1:
            first, is_branch = lines[at + 1], False
        if not ran[at] or first != condition or is_branch:
            last = condition if is_branch else lines[end - 1]
            text = rows[condition - 1].strip()
            yield Unreached(first, last, text, is_branch, False, 0, source.problem)
        at = at + 1 if ran[at] and first == condition else end
