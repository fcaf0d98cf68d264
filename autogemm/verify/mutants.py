"""Bugs planted by rules in emitted kernels: which of them no edge case finds.

Mutation analysis (DeMillo, Lipton and Sayward, Hints on Test Data Selection, 1978): each rule is a
slip that people make, a mutant is a kernel with one of them.
"""

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import KernelSource, LaunchPlan
from autogemm.space import Family, launch_plan
from autogemm.support.errors import KernelCompileError
from autogemm.verify.cases import Case, CaseSet, legal_case, report_of


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of slip: what it finds in a line, and what stands there instead."""

    name: str
    pattern: str
    instead: str

    def edits(self, line: str) -> Iterator[str]:
        """The line with the slip, once for each place that has it."""
        for found in re.finditer(self.pattern, line):
            yield line[: found.start()] + found.expand(self.instead) + line[found.end() :]


# Names of functions that order accesses; a name with `async` copies.
_ORDER = r"(?:(?<!a)sync|barrier|fence|arrive|commit)"
_ARGUMENTS = r"(?:<[^;]*>)?\(.*\);$"
RULES: tuple[Rule, ...] = (
    Rule("barrier dropped", rf"^(\s*)\w*{_ORDER}\w*{_ARGUMENTS}", r"\1;"),
    Rule("wait dropped", rf"^(\s*)\w*wait\w*{_ARGUMENTS}", r"\1;"),
    Rule("wait weakened", r"(\bwait\w*<)([^<>]+)(>\()", r"\1(\2) + 1\3"),
    Rule("wait weakened", r"(\bwait\w*\()(\w+)(\);)", r"\1\2 + 1\3"),
    Rule(
        "call dropped",
        r"^(\s*)(?!.*(?:(?<!a)sync|barrier|fence|arrive|commit|wait))\w+(?:<[^;]*>)?\(.*\);$",
        r"\1;",
    ),
    Rule("bound one too far", r" < ", " <= "),
    Rule("bound one too near", r" <= ", " < "),
    Rule("bound one too far", r" >= ", " > "),
    Rule("bound one too near", r" > ", " >= "),
    Rule("comparison turned", r" == ", " != "),
    Rule("comparison turned", r" != ", " == "),
    Rule("and for or", r" \|\| ", " && "),
    Rule("or for and", r" && ", " || "),
    Rule("guard always open", r"\bif \((?!true).*\) \{$", "if (true) {"),
    Rule("guard always shut", r"\bif \((?!false).*\) \{$", "if (false) {"),
    Rule("off by one", r" \+ 1\b", ""),
    Rule("off by one", r" - 1\b", ""),
    Rule("off by one", r"\b(int \w+) = 0;", r"\1 = 1;"),
    Rule("minus for plus", r" \+ ", " - "),
    Rule("plus for minus", r" - ", " + "),
    Rule("stride dropped", r" \* \w+", ""),
    Rule("stride one too long", r" \* (\w+)", r" * (\1 + 1)"),
    Rule("stride one too short", r" \* (\w+)", r" * (\1 - 1)"),
    Rule("division dropped", r" / \w+", ""),
    Rule("remainder dropped", r" % \w+", ""),
    Rule("scale dropped", r"\b(?:with\.)?(?:alpha|beta) \* ", ""),
    Rule("sum not kept", r" \+= ", " = "),
    Rule("index narrowed", r"\(long long\)", "(int)"),
    Rule("index narrowed", r"\blong long\b(?!\))", "int"),
    Rule("difference unsigned", r"\bint (?=\w+ = [^;]* - (?!1\b))", "unsigned "),
    Rule("arguments swapped", r"(?<=[( ])(\w+), (\w+)(?=[,)])", r"\2, \1"),
    Rule("operands swapped", r"\blda\b", "ldb"),
    Rule("operands swapped", r"\bldb\b", "lda"),
    Rule("operands swapped", r"\bldc\b", "ldb"),
    Rule("operands swapped", r"\bm0\b", "n0"),
    Rule("operands swapped", r"\bn0\b", "m0"),
    Rule("operands swapped", r"\bM\b", "N"),
    Rule("operands swapped", r"\bN\b", "M"),
    Rule("operands swapped", r"\bBM\b", "BN"),
    Rule("operands swapped", r"\bBN\b", "BM"),
)

# The emulator replaces what is between these; on a GPU alone can it be tested.
_TWINS_BEGIN, _TWINS_END = "#ifndef AUTOGEMM_EMULATOR", "#endif  // AUTOGEMM_EMULATOR"
# Lines that say nothing of what is computed, or whose value the launch takes from the config.
_PASSED_OVER = re.compile(r"^\s*(//|#|using\b|template\b|static_assert|$)|constexpr int \w+ = \d+;")


# The first cases of a config, whose lines mutants are drawn from.
SHOWN = 16


class Fate(StrEnum):
    """The fate of a mutant. SAME_CODE: g++ makes the same program of it, on the CPU at least."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    OUT_OF_TIME = "out of time"
    SAME_CODE = "same code"
    NOT_COMPILED = "not compiled"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A slip in one line of a config's kernels: wherever the line stands, ``new`` stands instead.

    ``line`` and ``new`` are without indentation.
    """

    config: Config
    rule: str
    line: str
    new: str

    def apply(self, text: str) -> str:
        """The text with the slip; the same where the line is not in it."""
        return re.sub(
            rf"^( *){re.escape(self.line)}$", lambda found: found[1] + self.new, text, flags=re.M
        )


@dataclass(frozen=True, slots=True)
class MutantResult:
    """A mutant's fate; the first problem that caught it and by what."""

    mutant: Mutant
    fate: Fate
    seconds: float
    problem: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Draw:
    """The number of mutants, the seed, and the seconds after which each is given up."""

    count: int
    seed: int = 0
    each_s: float = 60.0


@dataclass(frozen=True, slots=True)
class _Run:
    """A case made ready: the source as it is emitted, and how it is launched."""

    source: KernelSource
    plan: LaunchPlan
    case: Case


class _Runs:
    """The cases of a config that are legal, or nearly so; each is made ready when it is needed."""

    def __init__(self, family: Family, device: Device, cases: Sequence[Case]) -> None:
        self._family, self._device, self._cases = family, device, cases
        self._ready: dict[int, _Run | None] = {}

    def __iter__(self) -> Iterator[_Run]:
        for index in range(len(self._cases)):
            if index not in self._ready:
                self._ready[index] = self._made(self._cases[index])
            run = self._ready[index]
            if run is not None:
                yield run

    def _made(self, planned: Case) -> _Run | None:
        case = legal_case(self._family, self._device, planned)
        if case is None:
            return None
        plan = launch_plan(self._family, case.config, case.problem, few_blocks=True)
        return _Run(render(self._family, case.config, case.problem), plan, case)


@dataclass(frozen=True, slots=True)
class Planted:
    """A mutant, and the cases on which it runs until one catches it."""

    mutant: Mutant
    runs: _Runs


def mutants_of(config: Config, texts: Sequence[str]) -> list[Mutant]:
    """All mutants of the lines of a config's emitted texts, each once."""
    found: dict[Mutant, None] = {}
    for line in dict.fromkeys(line for text in texts for line in _lines(text)):
        for rule in RULES:
            for edit in rule.edits(line):
                found[Mutant(config, rule.name, line, edit)] = None
    return list(found)


def _lines(text: str) -> Iterator[str]:
    """The lines that the emulator runs, without indentation."""
    is_replaced = False
    for line in text.splitlines():
        if line in {_TWINS_BEGIN, _TWINS_END}:
            is_replaced = line == _TWINS_BEGIN
        elif not is_replaced and not _PASSED_OVER.search(line):
            yield line.strip()


def run_mutants(
    family: Family, device: Device, emulator: Emulator, sets: Sequence[CaseSet], draw: Draw
) -> Iterator[MutantResult]:
    """The fates of mutants drawn at random from the configs of planned cases, by turns.

    A mutant runs on the config's edge cases, in the order of coverage, until one catches it or its
    time is over.
    """
    drawn = draw_mutants(family, device, sets, draw)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda one: fate_of(emulator, one, draw.each_s), drawn)


def draw_mutants(
    family: Family, device: Device, sets: Sequence[CaseSet], draw: Draw
) -> list[Planted]:
    """Draw mutants from the configs of planned cases, by turns, each once.

    Rules are drawn with the same chance, however often they apply. Their lines are those of a
    config's first cases, in which each shape and each layout has come.
    """
    runs = [_Runs(family, device, one.cases) for one in sets]
    waiting = [
        _by_rule(
            mutants_of(
                one.config,
                [run.source.text for run in _Runs(family, device, one.cases[:SHOWN])],
            )
        )
        for one in sets
    ]
    rng = np.random.default_rng(draw.seed)
    drawn: list[Planted] = []
    for at in itertools.islice(itertools.cycle(range(len(sets))), len(sets) * draw.count):
        rules = waiting[at]
        if rules and len(drawn) < draw.count:
            rule = sorted(rules)[int(rng.integers(len(rules)))]
            mutant = rules[rule].pop(int(rng.integers(len(rules[rule]))))
            drawn.append(Planted(mutant, runs[at]))
            if not rules[rule]:
                del rules[rule]
    return drawn


def _by_rule(mutants: Sequence[Mutant]) -> dict[str, list[Mutant]]:
    found: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        found.setdefault(mutant.rule, []).append(mutant)
    return found


def fate_of(
    emulator: Emulator,
    planted: Planted,
    each_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> MutantResult:
    """Run a mutant until a case catches it or ``each_s`` of the clock are over."""
    start = clock()
    mutant = planted.mutant
    texts: dict[str, str] = {}
    try:
        for run in planted.runs:
            text = mutant.apply(run.source.text)
            if text == run.source.text:
                continue
            texts[run.source.text] = text
            report = report_of(emulator, replace(run.source, text=text), run.plan, run.case)
            seconds = clock() - start
            if not report.ok:
                message = report.message.splitlines()[0]
                label = run.case.problem.label
                return MutantResult(mutant, Fate.CAUGHT, seconds, label, message)
            if seconds > each_s:
                break
        is_same = all(emulator.is_same_program(*pair) for pair in texts.items())
    except KernelCompileError:
        return MutantResult(mutant, Fate.NOT_COMPILED, clock() - start)
    seconds = clock() - start
    fate = Fate.SAME_CODE if is_same else Fate.OUT_OF_TIME if seconds > each_s else Fate.SURVIVED
    return MutantResult(mutant, fate, seconds)
