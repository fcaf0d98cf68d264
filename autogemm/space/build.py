"""Builds the legal space by a progressive join.

Partial configs are extended parameter by parameter, in blocks, and every constraint is applied as
soon as all that it reads is there: what an early constraint excludes is never built. The idea is
that of a relational join with its selections pushed down.
"""

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space.expressions.evaluation import Mask, Operand
from autogemm.space.family import Constraint, Family, device_values, problem_values
from autogemm.space.legal import Keys, Radix, Space
from autogemm.space.narrowing import narrowed
from autogemm.support.errors import EmptySpaceError, FamilyError, UsageError

# Rows per block: a column of int64 fits the second-level cache, and NumPy's overhead is small.
BLOCK_ROWS = 2**17
SAMPLE_ROWS = 1024
# A group of parameters with more combinations waits: of its share the sample says nothing.
MOST_COMBINED = 2**14
MAX_LEGAL = 200_000_000
# Partial configs looked at: minutes. Beyond it the constraints are too weak to be of use.
MAX_VISITED = 4_000_000_000
# Keys are int64.
MAX_RAW = 2**62
# Looking for the one rule that is in the way of all configs takes no longer.
MOST_BLAME_S = 2.0
# How far from a config legal ones are looked for, before the whole space is built.
STEPS = (2, 8)
MAX_NEAR = 2**50
ADVICE = "narrow it with --fix NAME=VALUE"


def build_space(
    family: Family,
    problem: Problem,
    device: Device,
    fix: Mapping[str, Sequence[Value]] | None = None,
) -> Space:
    """Every legal config of the family for this problem and device.

    ``fix`` narrows parameters to some of their values. Raises EmptySpaceError when no config is
    legal, UsageError for an unknown name or value in ``fix`` or a space too large to enumerate,
    FamilyError when a constraint cannot be evaluated.
    """
    fix = fix or {}
    family = family.on(device)
    radix = _radix(family, problem, fix)
    join = _Join(family, problem, device, radix)
    keys = join.legal_keys()
    removed = tuple(zip(family.rules, join.removed, strict=True))
    if not len(keys):
        constraint, count = max(removed, key=lambda pair: pair[1])
        broken = f"of {radix.count} configs {count} break '{constraint}'"
        alone = _alone_in_the_way(family, problem, device, radix, join.removed)
        if alone is not None:
            broken = f"those that keep all other rules break '{alone}'"
        raise EmptySpaceError(
            f"no config of {family.name} is legal for {problem.label} on {device.name}: {broken}; "
            "fix fewer values or choose another family, size or GPU"
        )
    chosen = {p.name: p.values for p in radix.parameters if p.name in fix}
    return Space(family, problem, device, chosen, removed, radix, keys)


def _alone_in_the_way(
    family: Family, problem: Problem, device: Device, radix: Radix, removed: Sequence[int]
) -> Constraint | None:
    """The rule without which some config would be legal; None where there is none, or where it is
    not found in a moment. Rules that a search alone keeps come first.
    """
    begin = time.monotonic()
    for number in reversed(range(len(family.rules))):
        if time.monotonic() - begin > MOST_BLAME_S:
            break
        if removed[number]:
            with suppress(FamilyError, UsageError):
                if _Join(family, problem, device, radix, without=number).has_keys():
                    return family.rules[number]
    return None


def nearest_config(
    family: Family,
    problem: Problem,
    device: Device,
    fix: Mapping[str, Sequence[Value]],
    config: Config,
) -> Config | None:
    """The config of `build_space` that its `Space.nearest` has for this one; None without any.

    Only what is near is built, unless nothing there is legal. Raises as `build_space`.
    """
    family = family.on(device)
    radix = _radix(family, problem, fix)
    join = _Join(family, problem, device, radix)
    keys = join.legal_keys_near(config)
    if keys is None:
        keys = join.legal_keys()
    if not len(keys):
        return None
    space = Space(family, problem, device, {}, (), radix, keys)
    return space.config(space.nearest(config))


def _radix(family: Family, problem: Problem, fix: Mapping[str, Sequence[Value]]) -> Radix:
    """The family's configs within ``fix``. Raises EmptySpaceError for a problem without kernels."""
    if not family.fits(problem.dtype):
        known = ", ".join(dtype.label for dtype in DType if family.fits(dtype))
        raise EmptySpaceError(
            f"{family.name} is for {known}, not for {problem.label}; choose another family or "
            "another --dtype"
        )
    if not (problem.batch.is_one or family.takes_batches):
        raise EmptySpaceError(
            f"a launch of {family.name} makes one product, not {problem.label}; choose another "
            "family or leave out --batch"
        )
    if reason := family.refuses_groups(problem):
        raise EmptySpaceError(
            f"{reason}, not {problem.label}; choose another family or leave out --groups"
        )
    radix = Radix(narrowed(family, fix))
    if radix.count > MAX_RAW:
        raise UsageError(
            f"{family.name} has {radix.count} raw configs, at most {MAX_RAW} can be; {ADVICE}"
        )
    return radix


@dataclass(frozen=True, slots=True)
class _Rule:
    """A constraint, with the parameters (positions) and derived names that it needs; ``read`` has
    the names of both.
    """

    position: int
    parameters: frozenset[int]
    derived: tuple[str, ...]
    read: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Step:
    """Extend by a parameter (none at the start), then apply the rules that now can be."""

    parameter: int | None
    rules: tuple[_Rule, ...]
    # Raw configs that one partial config stands for after this step.
    weight: int

    @property
    def read_later(self) -> list[frozenset[str]]:
        """For each rule, the names that the rules behind it read."""
        later = list(
            accumulate(
                reversed(self.rules), lambda names, one: names | one.read, initial=frozenset[str]()
            )
        )
        return later[-2::-1]


class _Join:
    def __init__(
        self,
        family: Family,
        problem: Problem,
        device: Device,
        radix: Radix,
        without: int | None = None,
    ) -> None:
        self._family = family
        self._radix = radix
        self._without = without
        self._visited = 0
        self.removed = [0] * len(family.rules)
        self._scalars: dict[str, Operand] = {**problem_values(problem), **device_values(device)}
        single = [p for p in radix.parameters if len(p.values) == 1]
        self._scalars |= {p.name: p.values[0] for p in single}

    def legal_keys_near(self, config: Config) -> Keys | None:
        """The key of the legal config nearest to this one, as `Space.nearest` counts steps.

        Empty where no config is legal; None where that takes the whole space to tell.
        """
        by_parameters: dict[frozenset[int], list[_Rule]] = {}
        for rule in self._rules:
            by_parameters.setdefault(rule.parameters, []).append(rule)
        no_keys = np.empty(0, dtype=np.int64)
        with suppress(FamilyError):
            scalar = by_parameters.pop(frozenset(), [])
            if not len(self._allowed(np.zeros(1, dtype=np.int64), scalar)):
                return no_keys
            # What each parameter may add to a key, and its steps as one more digit, before all.
            offsets: dict[int, Keys] = {}
            for position, (size, stride) in enumerate(
                zip(self._radix.sizes, self._radix.strides, strict=True)
            ):
                keys = np.arange(size, dtype=np.int64) * stride
                keys = self._allowed(keys, by_parameters.pop(frozenset([position]), []))
                if not len(keys):
                    return no_keys
                full = self._family.parameters[position]
                steps = self._radix.steps(full, position, config)[keys // stride].astype(np.int64)
                offsets[position] = keys + (steps - steps.min()) * self._radix.count
            count = self._radix.count
            for position in offsets.keys() - frozenset().union(*by_parameters):
                # No rule keeps it from the nearest value.
                offsets[position] = offsets[position][offsets[position] < count]
            farthest = sum(int(keys.max()) // count for keys in offsets.values())
            for most in sorted({min(steps, farthest) for steps in (*STEPS, farthest)}):
                found = self._within(most, offsets, by_parameters) if count < MAX_NEAR else None
                if found is not None and (len(found) or most == farthest):
                    return np.sort(found)[:1] % count
        return None

    def _within(
        self, most: int, offsets: Mapping[int, Keys], waiting: Mapping[frozenset[int], list[_Rule]]
    ) -> Keys | None:
        """Legal keys of at most so many steps, which are their first digit; None where there are
        too many partial keys.
        """
        keys = np.zeros(1, dtype=np.int64)
        missing, waiting = set(offsets), dict(waiting)
        while missing:
            # The rules that the fewest values complete; then parameters that no rule reads.
            groups = [group & missing for group in waiting] or [frozenset(missing)]
            group = min(groups, key=lambda one: math.prod(len(offsets[i]) for i in one))
            for position in group:
                keys = (keys[:, np.newaxis] + offsets[position]).ravel()
                keys = keys[keys < (most + 1) * self._radix.count]
                if len(keys) > BLOCK_ROWS:
                    return None
            missing -= group
            for done in [one for one in waiting if not one & missing]:
                keys = self._allowed(keys, waiting.pop(done))
            if not len(keys):
                break
        return keys

    def _allowed(self, keys: Keys, rules: Sequence[_Rule]) -> Keys:
        """The keys that keep these rules; what they exclude is not counted."""
        return self._legal(keys, _Step(None, tuple(rules), 0)) if rules else keys

    def has_keys(self) -> bool:
        """Whether there is a legal config."""
        return any(len(block) for block in self._blocks())

    def _blocks(self) -> Iterable[Keys]:
        steps = self._steps()
        blocks: Iterable[Keys] = list(self._extended([np.zeros(1, dtype=np.int64)], next(steps)))
        if not blocks:
            # The problem and fixed values alone break a rule.
            return []
        for step in steps:
            blocks = self._extended(blocks, step)
        return blocks

    def legal_keys(self) -> Keys:
        """Keys of the legal configs, ascending. Counts ``removed`` on the way."""
        blocks = self._blocks()
        found: list[Keys] = []
        count = 0
        for block in blocks:
            found.append(block)
            count += len(block)
            if count > MAX_LEGAL:
                raise UsageError(
                    f"{self._family.name} has more than {MAX_LEGAL} legal configs here; {ADVICE}"
                )
        keys = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
        keys.sort()
        return keys

    @cached_property
    def _rules(self) -> list[_Rule]:
        positions = {
            p.name: i for i, p in enumerate(self._radix.parameters) if p.name not in self._scalars
        }
        rules = []
        for i, constraint in enumerate(self._family.rules):
            if i == self._without:
                continue
            derived, names = self._family.derived_for(constraint.require.names)
            own = names & positions.keys()
            parameters = frozenset(positions[name] for name in own)
            rules.append(_Rule(i, parameters, derived, frozenset((*derived, *own))))
        return rules

    def _steps(self) -> Iterator[_Step]:
        """The steps, in an order that keeps partial configs few; free parameters come last.

        Groups that complete a rule are ranked by (net growth - 1) / cost, as for ordering joins in
        Ibaraki and Kameda, On the optimal nesting order, ACM TODS 9 (1984): a group of parameters
        with g combinations, of which a share s is legal, has the cost g and the net growth s g.
        Shares are those among random configs that keep the rules of all steps before. Groups with
        more than MOST_COMBINED combinations come behind all others, the smallest first.
        """
        sizes = self._radix.sizes
        waiting = self._rules
        missing = {i for i, size in enumerate(sizes) if size > 1}

        def step(parameter: int | None) -> _Step:
            nonlocal waiting
            missing.discard(-1 if parameter is None else parameter)
            ready = tuple(rule for rule in waiting if not rule.parameters & missing)
            waiting = [rule for rule in waiting if rule.parameters & missing]
            return _Step(parameter, ready, math.prod(sizes[i] for i in missing))

        def keeps(group: frozenset[int]) -> Mask:
            """Whether configs of the sample keep all rules that the group completes."""
            done = [
                rule.position for rule, left in zip(waiting, lacking, strict=True) if left <= group
            ]
            found: Mask = np.logical_and.reduce(kept[done], axis=0)
            return found

        def cost(group: frozenset[int]) -> tuple[float, float]:
            count = math.prod(sizes[i] for i in group)
            rank = float(keeps(group).mean()) - 1 / count
            return max(0.0, count / MOST_COMBINED - 1.0), rank

        yield step(None)
        rng = np.random.default_rng(0)
        sample = rng.integers(self._radix.count, size=SAMPLE_ROWS)
        while waiting:
            kept = self._sampled(waiting, sample)
            lacking = [rule.parameters & missing for rule in waiting]
            group = min(dict.fromkeys(lacking), key=cost)
            left_over = sample[keeps(group)]
            yield from [step(parameter) for parameter in sorted(group)]
            sample = self._resampled(left_over, missing, rng)
        yield from [step(parameter) for parameter in sorted(missing)]

    def _resampled(self, sample: Keys, missing: Collection[int], rng: np.random.Generator) -> Keys:
        """As many configs as at first: some of these, with other values of what is missing."""
        if not len(sample):
            # Nothing is known of what is left.
            return rng.integers(self._radix.count, size=SAMPLE_ROWS)
        found = rng.choice(sample, SAMPLE_ROWS)
        for position in missing:
            size, stride = self._radix.sizes[position], self._radix.strides[position]
            new = rng.integers(size, size=SAMPLE_ROWS)
            found += (new - self._radix.digits(found, position)) * stride
        return found

    def _sampled(self, rules: Sequence[_Rule], keys: Keys) -> Mask:
        """Whether each of these configs keeps each rule, of shape [rules, configs]."""
        given = dict(self._scalars)
        kept = np.ones((len(self._family.rules), len(keys)), dtype=np.bool_)
        for rule in rules:
            # A rule may divide by what another rule would have excluded: nothing is known then.
            with suppress(FamilyError):
                kept[rule.position] = self._kept(keys, rule, given)
        return kept

    def _extended(self, blocks: Iterable[Keys], step: _Step) -> Iterator[Keys]:
        """Blocks of legal partial keys; small ones are gathered, so that a block stays worth it."""
        offsets = np.zeros(1, dtype=np.int64)
        if step.parameter is not None:
            size, stride = self._radix.sizes[step.parameter], self._radix.strides[step.parameter]
            offsets = np.arange(size, dtype=np.int64) * stride
        rows = max(1, BLOCK_ROWS // len(offsets))
        gathered: list[Keys] = []
        num_gathered = 0
        for block in blocks:
            for start in range(0, len(block), rows):
                keys = (block[start : start + rows, np.newaxis] + offsets).ravel()
                legal = self._legal(keys, step)
                if len(legal):
                    gathered.append(legal)
                    num_gathered += len(legal)
                if num_gathered >= BLOCK_ROWS:
                    yield np.concatenate(gathered)
                    gathered, num_gathered = [], 0
        if gathered:
            yield np.concatenate(gathered)

    def _legal(self, keys: Keys, step: _Step) -> Keys:
        """The keys that keep all of the step's rules; the others are counted as removed."""
        self._visited += len(keys)
        if self._visited > MAX_VISITED:
            raise UsageError(
                f"{self._family.name} is too large to enumerate here: {MAX_VISITED:.0e} partial "
                f"configs were tried; {ADVICE}, or constrain fewer parameters at once"
            )
        given = dict(self._scalars)
        for rule, read_later in zip(step.rules, step.read_later, strict=True):
            if not len(keys):
                break
            kept = self._kept(keys, rule, given)
            rows = np.flatnonzero(kept)
            lost = len(keys) - len(rows)
            if lost:
                self.removed[rule.position] += lost * step.weight
                keys = keys.take(rows)
            for name in [name for name, value in given.items() if isinstance(value, np.ndarray)]:
                if name not in read_later:
                    del given[name]
                elif lost:
                    given[name] = given[name].take(rows)  # type: ignore[union-attr]
        return keys

    def _kept(self, keys: Keys, rule: _Rule, given: dict[str, Operand]) -> Mask:
        """Row by row whether the rule holds; what had to be computed for it stays in ``given``."""
        for i in rule.parameters:
            name = self._radix.parameters[i].name
            if name not in given:
                given[name] = self._radix.values(keys, i)
        for name in rule.derived:
            if name not in given:
                given[name] = self._family.derive[name].evaluate(given)
        kept = self._family.rules[rule.position].require.holds(given)
        return np.full(len(keys), kept) if isinstance(kept, bool) else kept


Rows = npt.NDArray[np.intp]


def listed_space(
    family: Family,
    problem: Problem,
    device: Device,
    columns: Mapping[str, Sequence[Value]],
    fix: Mapping[str, Sequence[Value]] | None = None,
) -> tuple[Space, Rows]:
    """The space of the configs in ``columns`` (one list for each parameter, all equally long).

    The family's constraints are not asked: legal is what is listed and within ``fix``. The second
    value has, for each index of the space, the row of ``columns`` that it is. Raises UsageError for
    an unknown name or value in ``fix``, EmptySpaceError when nothing listed is within it.
    """
    fix = fix or {}
    radix = Radix(narrowed(family, fix))
    if radix.count > MAX_RAW:
        raise UsageError(f"{family.name} has {radix.count} raw configs, at most {MAX_RAW} can be")
    listed = next(iter(columns.values()), ())
    keys = np.zeros(len(listed), dtype=np.int64)
    is_kept = np.ones(len(listed), dtype=np.bool_)
    for parameter, stride in zip(radix.parameters, radix.strides, strict=True):
        ranks = {value: rank for rank, value in enumerate(parameter.values)}
        digits = np.array([ranks.get(v, -1) for v in columns[parameter.name]], dtype=np.int64)
        is_kept &= digits >= 0
        keys += digits * stride
    rows = np.flatnonzero(is_kept)
    if not len(rows):
        raise EmptySpaceError(
            f"none of the {len(listed)} configs that are listed is left; fix fewer values"
        )
    rows = rows[np.argsort(keys[rows], kind="stable")]
    chosen = {p.name: p.values for p in radix.parameters if p.name in fix}
    return Space(family, problem, device, chosen, (), radix, keys[rows]), rows
