"""A library from what the database knows of one GPU."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from autogemm.codegen import render
from autogemm.codegen.export import (
    STACKED,
    Kind,
    Library,
    Part,
    Variant,
    has_functions,
    library_layouts,
)
from autogemm.dispatch.learning import Learned, by_merit, learn
from autogemm.dispatch.legal import NearestLegal
from autogemm.dispatch.table import Table, TunedSize, common_table, tuned_sizes
from autogemm.model.batch import ONE
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Provenance
from autogemm.model.rule import Leaf, Modelled, Nearest, Rule, Size, Split, Tree
from autogemm.space import ALIGNMENT_BYTES, Family, derive_values
from autogemm.store import DecidedRow
from autogemm.support.errors import NotFoundError, UsageError

# It is given kernels and how many there are, and passes them on.
Watch = Callable[[Iterable[int], int], Iterable[int]]


def assembled(  # noqa: PLR0913  # keywords, but for the first three
    runs: Sequence[DecidedRow],
    families: Sequence[Family],
    device: Device,
    *,
    layouts: Sequence[Layout] | None = None,
    dtypes: Sequence[DType] | None = None,
    epilogues: Sequence[Epilogue] = (),
    watch: Watch = lambda kernels, total: kernels,
) -> Library:
    """Kernels, rules and findings of each dtype that was tuned on that GPU, of ``dtypes`` if given.

    With ``epilogues`` there are also those that were tuned with each, where there must be some.
    Batches and groups have parts of their own where they were tuned, without an epilogue; a C of
    8-bit floats has one with an epilogue alone, which scales it.

    ``layouts`` get kernels, by default those that were tuned; the others have the fallback. A rule
    is learned from the layout with the most results. ``watch`` is given the kernels of a dtype and
    how many there are, and passes them on. Raises NotFoundError without any result.
    """
    nearest_legal = NearestLegal(families, device)

    def made(epilogue: Epilogue, kind: Kind = Kind.ONE) -> tuple[Part, ...]:
        every = (
            _part(runs, nearest_legal, dtype, epilogue.in_dtype(dtype), kind, layouts, watch)
            for dtype in dtypes or DType
            if has_functions(dtype, kind) and not (epilogue.is_plain and dtype.c.saturates)
        )
        return tuple(part for part in every if part is not None)

    stacked = tuple(chain.from_iterable(made(PLAIN, kind) for kind in STACKED))

    def parts(with_epilogue: Epilogue) -> tuple[Part, ...]:
        found = made(with_epilogue)
        is_plain = with_epilogue.is_plain
        if not found and not (is_plain and (epilogues or stacked)):
            asked = f" for {', '.join(map(str, dtypes))}" if dtypes else ""
            fused = "" if is_plain else f" with the epilogue {with_epilogue}"
            option = "" if is_plain else f' --epilogue "{with_epilogue}"'
            raise NotFoundError(
                f"these families have no result{asked}{fused} on {device.name}: "
                f"autogemm tune --preset mixed --cross{option}"
            )
        return found

    return Library(device, parts(PLAIN), tuple(parts(one) for one in epilogues), stacked)


def _part(  # noqa: PLR0913, PLR0917  # what was tuned, and which of it
    runs: Sequence[DecidedRow],
    nearest_legal: NearestLegal,
    dtype: DType,
    epilogue: Epilogue,
    kind: Kind,
    layouts: Sequence[Layout] | None,
    watch: Watch,
) -> Part | None:
    """The part of the library for a dtype, an epilogue and a kind; None without any result."""
    device = nearest_legal.device
    by_layout = {one: _sizes_of(kind, runs, device, dtype, one, epilogue) for one in Layout}
    ruling = max(by_layout, key=lambda one: len(by_layout[one]))
    table = common_table(by_layout[ruling], nearest_legal)
    sizes = table.sizes
    if not sizes:
        return None
    every = layouts or [one for one in Layout if by_layout[one]]
    chosen = [one for one in every if one in library_layouts(dtype)]
    if not chosen:
        return None
    extents = tuple((*size.size, *kind.count(size.problem)) for size in sizes)
    if kind is Kind.ONE:
        learned = learn(table, device.num_sms)
    else:
        learned = Learned(Nearest(extents, table.winners), {})
    used = sorted(learned.rule.kernels)
    order = by_merit(table, range(len(sizes)), range(len(table.kernels)))
    variants = [
        variant
        for number, kernel in enumerate(watch(used, len(used)))
        for variant in variants_of(
            table.kernels[kernel], number, chosen, nearest_legal, dtype, epilogue, kind
        )
    ]
    if kind is not Kind.ONE and not variants:
        # None of these layouts is one of the kind.
        return None
    is_recorded = any(
        run.spec.provenance is Provenance.RECORDED
        for run in runs
        if run.run_id in {size.run_id for size in sizes}
    )
    return Part(
        dtype=dtype,
        rule=_renumbered(learned.rule, used),
        configs=tuple(table.kernels[kernel] for kernel in used),
        variants=tuple(variants),
        by_merit=tuple(used.index(kernel) for kernel in order if kernel in used),
        tuned=extents,
        best_at=tuple(used.index(one) if one in used else None for one in table.winners),
        findings=tuple(_findings(table, learned, ruling, chosen, kind, is_recorded)),
        layout=ruling,
        epilogue=epilogue,
        kind=kind,
    )


def _sizes_of(  # noqa: PLR0913, PLR0917  # what makes a problem
    kind: Kind,
    runs: Sequence[DecidedRow],
    device: Device,
    dtype: DType,
    layout: Layout,
    epilogue: Epilogue,
) -> tuple[TunedSize, ...]:
    """The tuned problems of a kind; of a batch or groups, whatever their number."""
    batch = ONE if kind is Kind.ONE else None
    every = tuned_sizes(runs, device, dtype, layout, epilogue, batch, grouped=kind.is_grouped)
    return tuple(size for size in every if Kind.of(size.problem) is kind)


def _findings(  # noqa: PLR0913, PLR0917  # what is told of each part
    table: Table,
    learned: Learned,
    ruling: Layout,
    layouts: Sequence[Layout],
    kind: Kind,
    is_recorded: bool,
) -> list[str]:
    recorded = (
        "RECORDED, NOT MEASURED ON THIS MACHINE: all times below are from recordings or the "
        "catalogue, of the kernels as they were then."
    )
    lines = [recorded] if is_recorded else []
    lines.append(
        f"Rule: {learned.rule}, from times at {len(table.sizes)} sizes in the layout "
        f"{ruling}. Kernels for the layouts {', '.join(layouts)}; any other call, and any that no "
        "kernel fits, takes the fallback."
    )
    if kind is not Kind.ONE:
        lines.append(
            "Expected loss on sizes that were not tuned: not known, because rules for batches and "
            "groups are not judged."
        )
        return lines
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


def variants_of(  # noqa: PLR0913, PLR0917  # what makes a kind of problem, each optional
    config: Config,
    number: int,
    layouts: Sequence[Layout],
    nearest_legal: NearestLegal,
    dtype: DType = DType.F32,
    epilogue: Epilogue = PLAIN,
    kind: Kind = Kind.ONE,
) -> tuple[Variant, ...]:
    """Without edges, with the most frequent ones, with any; with rows that no vector fits; for what
    is smaller than a tile. For each layout, once each text. Edges are written as they are fastest.

    ``number`` is the config's in the rule. A kind that has no legal config is left out.
    """
    found: dict[str, Variant] = {}
    tile = _tile(nearest_legal.family(config), config, dtype)
    for layout in layouts:
        for edges, plain in _kinds(tile, layout, dtype):
            examples = (kind.example(problem.with_epilogue(epilogue)) for problem in plain)
            problems = [problem for problem in examples if problem is not None]
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


def _kinds(tile: Size, layout: Layout, dtype: DType) -> Iterator[tuple[str, list[Problem]]]:
    """Yield each kind of code, and problems of it: many rows, and where that is illegal, few."""
    bm, bn, bk = tile
    vector = ALIGNMENT_BYTES // dtype.size_bytes
    tall = [(rows * bm, MANY * bn, MANY * bk) for rows in (MANY, FEW)]
    # A tile for few rows may have no more than a vector's.
    vectors = [(max(1, m - vector), n - vector, k) for m, n, k in tall]
    all_vectors = [(m, n, k - vector) for m, n, k in vectors]
    ragged = [(m - 1, n - 1, k - 1) for m, n, k in tall]

    def padded(size: Size, multiple: int) -> Problem:
        return _padded(size, layout, dtype, multiple)

    yield "no edges", [padded(size, vector) for size in tall]
    yield f"edges of C at multiples of {vector}", [padded(size, vector) for size in vectors]
    yield f"edges at multiples of {vector}", [padded(size, vector) for size in all_vectors]
    yield "any edges", [padded(size, vector) for size in ragged]
    yield "any rows", [padded(size, 1) for size in ragged]
    # Less than one tile each way.
    yield "any size", [padded((bm // 2 + 1, bn // 2 + 1, bk // 2 + 1), 1)]


def _padded(size: Size, layout: Layout, dtype: DType, multiple: int) -> Problem:
    """Leading dimensions that are multiples of a vector's elements, or for ``multiple`` 1 odd."""
    m, n, k = size
    vector = ALIGNMENT_BYTES // dtype.size_bytes

    def stride(columns: int) -> int:
        aligned = math.ceil(columns / vector) * vector
        return aligned if multiple > 1 else aligned + 1

    lda, ldb = stride(m if layout.trans_a else k), stride(k if layout.trans_b else n)
    return Problem(m, n, k, layout, dtype, lda, ldb, stride(n))


def _tile(family: Family, config: Config, dtype: DType) -> Size:
    """BM, BN and BK, the derived ``depth`` where a family has no BK.

    Raises UsageError where one is missing: the edges of its tiles are not known.
    """
    values = {
        "BK": derive_values(family, config, Problem(1, 1, 1, dtype=dtype)).get("depth"),
        **family.completed(config).as_dict(),
    }
    extents = [values.get(name) for name in ("BM", "BN", "BK")]
    for name, extent in zip(("BM", "BN", "BK"), extents, strict=True):
        if not isinstance(extent, int):
            raise UsageError(f"{config.family} has no {name}: its kernels cannot be put together")
    bm, bn, bk = (extent for extent in extents if isinstance(extent, int))
    return bm, bn, bk
