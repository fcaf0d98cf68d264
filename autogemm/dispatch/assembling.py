"""A library from what the database knows of one GPU."""

import math
from collections.abc import Iterator, Sequence

from autogemm.codegen import render
from autogemm.codegen.export import Library, Variant
from autogemm.dispatch.learning import Learned, by_merit, learn
from autogemm.dispatch.legal import NearestLegal
from autogemm.dispatch.table import Table, common_table, tuned_sizes
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Provenance
from autogemm.model.rule import Leaf, Modelled, Nearest, Rule, Split, Tree
from autogemm.space import Family
from autogemm.store import DecidedRow
from autogemm.support.errors import NotFoundError, UsageError


def assembled(
    runs: Sequence[DecidedRow],
    families: Sequence[Family],
    device: Device,
    layouts: Sequence[Layout] | None = None,
) -> Library:
    """Kernels, rule and findings for FP32 on that GPU.

    ``layouts`` get kernels, by default those that were tuned; the others have the fallback. The
    rule is learned from the layout with the most results. Raises NotFoundError without any result.
    """
    by_layout = {one: tuned_sizes(runs, device, DType.F32, one) for one in Layout}
    ruling = max(by_layout, key=lambda one: len(by_layout[one]))
    nearest_legal = NearestLegal(families, device)
    table = common_table(by_layout[ruling], nearest_legal)
    sizes = table.sizes
    if not sizes:
        raise NotFoundError(
            f"these families have no result for f32 on {device.name}: "
            "autogemm tune --preset mixed --cross"
        )
    chosen = layouts or [one for one in Layout if by_layout[one]]
    learned = learn(table, device.num_sms)
    used = sorted(learned.rule.kernels)
    order = by_merit(table, range(len(sizes)), range(len(table.kernels)))
    variants = [
        variant
        for number, kernel in enumerate(used)
        for variant in variants_of(table.kernels[kernel], number, chosen, nearest_legal)
    ]
    is_recorded = any(
        run.spec.provenance is Provenance.RECORDED
        for run in runs
        if run.run_id in {size.run_id for size in sizes}
    )
    return Library(
        device=device,
        rule=_renumbered(learned.rule, used),
        configs=tuple(table.kernels[kernel] for kernel in used),
        variants=tuple(variants),
        by_merit=tuple(used.index(kernel) for kernel in order if kernel in used),
        tuned=tuple(size.size for size in sizes),
        best_at=tuple(used.index(one) if one in used else None for one in table.winners),
        findings=tuple(_findings(table, learned, ruling, chosen, is_recorded)),
    )


def _findings(
    table: Table, learned: Learned, ruling: Layout, layouts: Sequence[Layout], is_recorded: bool
) -> list[str]:
    recorded = (
        "RECORDED, NOT MEASURED ON THIS MACHINE: all times below are from recordings, of the "
        "kernels as they were then."
    )
    lines = [recorded] if is_recorded else []
    lines.append(
        f"Rule: {learned.rule}, from times at {len(table.sizes)} sizes in the layout "
        f"{ruling}. Kernels for the layouts {', '.join(layouts)}; any other call, and any that no "
        "kernel fits, takes the fallback."
    )
    if learned.regret is None:
        lines.append(
            "Expected loss on sizes that were not tuned: not known, because the kernels were not "
            "all timed at all sizes (autogemm tune --cross does that)."
        )
        return lines
    for name, regret in learned.regrets.items():
        taken = "" if regret is learned.regret else " (not taken)"
        shares = [f"{100 * loss:.1f} %" for loss in (regret.mean, regret.median, regret.worst)]
        lines.append(
            f"Expected loss on sizes that were not tuned, {name}{taken}: {shares[0]} in the mean, "
            f"{shares[1]} in the median, {shares[2]} at worst, over the best kernel known there; "
            f"each of the {len(regret.losses)} sizes left out in turn with what only it brought."
        )
    return lines


def _renumbered(rule: Rule, used: Sequence[int]) -> Rule:
    """With kernels as positions in ``used``."""
    if isinstance(rule, Nearest):
        return Nearest(rule.sizes, tuple(used.index(kernel) for kernel in rule.of_size))
    if isinstance(rule, Modelled):
        return Modelled(rule.models, tuple(used.index(kernel) for kernel in rule.of_model))

    def renumbered(node: Split | Leaf) -> Split | Leaf:
        if isinstance(node, Leaf):
            return Leaf(used.index(node.kernel))
        return Split(node.feature, node.threshold, renumbered(node.below), renumbered(node.above))

    return Tree(renumbered(rule.root))


# Blocks each way of the problem that stands for a kind: enough for every constraint of a size.
MANY, FEW = 64, 1


def variants_of(
    config: Config, number: int, layouts: Sequence[Layout], nearest_legal: NearestLegal
) -> tuple[Variant, ...]:
    """Without edges, with the most frequent ones, with any; with rows that no vector fits; for what
    is smaller than a tile. For each layout, once each text. Edges are written as they are fastest.

    ``number`` is the config's in the rule. A kind that has no legal config is left out.
    """
    found: dict[str, Variant] = {}
    for layout in layouts:
        for edges, problems in _kinds(config, layout):
            variant = _first_legal(config, number, edges, problems, nearest_legal)
            if variant is not None:
                source = render(variant.family, variant.config, variant.problem)
                found.setdefault(source.sha256, variant)
    return tuple(found.values())


def _first_legal(
    config: Config,
    number: int,
    edges: str,
    problems: Sequence[Problem],
    nearest_legal: NearestLegal,
) -> Variant | None:
    for problem in problems:
        legal = nearest_legal(config, problem)
        if legal is not None:
            return Variant(number, nearest_legal.family(legal), legal, problem, edges)
    return None


def _kinds(config: Config, layout: Layout) -> Iterator[tuple[str, list[Problem]]]:
    """Yield each kind of code, and problems of it: many rows, and where that is illegal, few."""
    bm, bn, bk = (_extent(config, name) for name in ("BM", "BN", "BK"))
    tall = [(rows * bm, MANY * bn, MANY * bk) for rows in (MANY, FEW)]
    fours = [(m - 4, n - 4, k) for m, n, k in tall]
    all_fours = [(m - 4, n - 4, k - 4) for m, n, k in tall]
    ragged = [(m - 1, n - 1, k - 1) for m, n, k in tall]
    yield "no edges", [_padded(size, layout, 4) for size in tall]
    yield "edges of C at multiples of 4", [_padded(size, layout, 4) for size in fours]
    yield "edges at multiples of 4", [_padded(size, layout, 4) for size in all_fours]
    yield "any edges", [_padded(size, layout, 4) for size in ragged]
    yield "any rows", [_padded(size, layout, 1) for size in ragged]
    # Less than one tile each way.
    yield "any size", [_padded((bm // 2 + 1, bn // 2 + 1, bk // 2 + 1), layout, 1)]


def _padded(size: tuple[int, int, int], layout: Layout, multiple: int) -> Problem:
    """Leading dimensions that are multiples of 4, or for ``multiple`` 1 odd."""
    m, n, k = size

    def stride(columns: int) -> int:
        aligned = math.ceil(columns / 4) * 4
        return aligned if multiple == 4 else aligned + 1

    lda, ldb = stride(m if layout.trans_a else k), stride(k if layout.trans_b else n)
    return Problem(m, n, k, layout, DType.F32, lda, ldb, stride(n))


def _extent(config: Config, name: str) -> int:
    try:
        value = config[name]
    except KeyError as error:
        raise UsageError(
            f"{config.family} has no {name}: its kernels cannot be put together"
        ) from error
    assert isinstance(value, int), "tiles are numbers"
    return value
