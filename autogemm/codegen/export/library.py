"""Many kernels as one small C and C++ library: header, sources, self-test, benchmarks, CMake."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain

from autogemm.codegen.export.host import Host
from autogemm.codegen.export.kinds import STACKED, Kind, context_of_kind
from autogemm.codegen.export.rules import rule_text
from autogemm.codegen.export.standalone import (
    WRITTEN_BY,
    comment,
    kernel_marks,
    printable,
    program_context,
    shared_arrays,
)
from autogemm.codegen.fused import fused_of
from autogemm.codegen.rendering import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType, Element
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.groups import MAX_GROUPS
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.model.rule import Extents, Rule
from autogemm.model.signature import (
    COUNTS,
    OFFSETS,
    ArgumentType,
    CNames,
    ProblemType,
    Signature,
    gemm_signature,
)
from autogemm.space import ALIGNMENT_BYTES, Family, epilogue_rules, output_rules
from autogemm.support.errors import ExportError
from autogemm.support.templating import environment
from autogemm.support.version import __version__

# Version of the functions in the header; its first number is raised when programs must be
# recompiled.
API_VERSION = "1.2.0"
# The same GEMM of column-major matrices as one of row-major ones: C^T = op(B)^T op(A)^T.
_BY_COLUMNS = {
    **{"M": "N", "N": "M", "A": "B", "lda": "ldb", "B": "A", "ldb": "lda"},
    **{"batch_rows_a": "batch_rows_b", "batch_rows_b": "batch_rows_a"},
}
# Where the self-test keeps values that are not members of its problem.
_IN_TEST = {
    **{name: name for name in ("A", "B", "C", "workspace_bytes")},
    **{f"ld{name}": f"p.ld{name}()" for name in "abc"},
    "workspace": "workspace.data",
    **dict.fromkeys((OFFSETS, COUNTS), "rows"),
}
_BY_COLUMNS_IN_TEST = {
    name: _IN_TEST.get(other, f"p.{other}") for name, other in _BY_COLUMNS.items()
}
# The element types that C lacks, as the header calls them.
_ELEMENT_TYPES = {
    **{Element.F16: "autogemm_f16", Element.BF16: "autogemm_bf16"},
    **{Element.E4M3: "autogemm_e4m3", Element.E5M2: "autogemm_e5m2"},
}
# 8-bit floats, bytes in the header, as self-tests and benchmarks calculate with them.
_TEST_TYPES = {Element.E4M3: "E4m3", Element.E5M2: "E5m2"}
FILES = (
    *("autogemm.h", "check.h", "bytes.h", "exact.h", "selftest.cu"),
    *("CMakeLists.txt", "autogemm-config.cmake.in", "autogemm.pc.in"),
)
# Functions for batches and groups of dtypes that were tuned for none of them.
FALLBACKS = "fallbacks.cu"
TORCH_FILES = ("autogemm_torch.cpp", "autogemm_torch.py")
# The self-test's reference is slow: tuned sizes are cut down to these extents.
MOST_TESTED = (384, 384, 1024)


@dataclass(frozen=True, slots=True)
class Variant:
    """A config's kernel for one layout, and problems that are like this one in edges and rows."""

    config_number: int
    family: Family
    config: Config
    problem: Problem
    edges: str
    """The difference to the config's other variants, in a few words."""


LIBRARY_DTYPES: tuple[DType, ...] = tuple(
    dtype for dtype in DType if not dtype.c.saturates and dtype.b is dtype.ab
)
"""The dtypes that a library has functions for: A and B have one type, and a C of 8-bit floats needs
a scale, an epilogue.
"""


def library_layouts(dtype: DType) -> tuple[Layout, ...]:
    """The layouts of a library's functions: tensor cores take elements of 8 bits along K alone."""
    return (Layout.NT,) if dtype.size_bytes == 1 else tuple(Layout)


def has_functions(dtype: DType, kind: Kind) -> bool:
    """Whether a library has functions of that kind: groups of K are in layout tn."""
    return not kind.divides_k or Layout.TN in library_layouts(dtype)


@dataclass(frozen=True, slots=True)
class Part:
    """The kernels for one dtype.

    ``configs`` are numbered as in the rule; ``by_merit`` their positions, the one that loses least
    over all tuned sizes first; ``best_at`` the fastest of them at each tuned size, in ``layout``.
    ``tuned`` has M, N and K, and for a batch or groups their number.
    ``findings`` are lines for the head: where times come from, what the rule loses.
    """

    dtype: DType
    rule: Rule
    configs: tuple[Config, ...]
    variants: tuple[Variant, ...]
    by_merit: tuple[int, ...]
    tuned: tuple[Extents, ...]
    best_at: tuple[int | None, ...]
    findings: tuple[str, ...]
    layout: Layout = Layout.NN
    epilogue: Epilogue = PLAIN
    kind: Kind = Kind.ONE

    @property
    def label(self) -> str:
        """The dtype, and the kind of problem or the epilogue where there is one."""
        more = self.kind.plural or ("" if self.epilogue.is_plain else str(self.epilogue))
        return f"{self.dtype}, {more}" if more else str(self.dtype)


@dataclass(frozen=True, slots=True)
class Library:
    """The content of a library. A dtype without a part has the fallback alone.

    ``fused`` has parts for each epilogue, each in its canonical text for the part's dtype;
    ``stacked`` those for batches and for groups.
    """

    device: Device
    parts: tuple[Part, ...]
    fused: tuple[tuple[Part, ...], ...] = ()
    stacked: tuple[Part, ...] = ()

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts of one plain product, of batches and groups, and of each epilogue."""
        return tuple(chain(self.parts, self.stacked, *self.fused))


def source_name(dtype: DType) -> str:
    """The file with the kernels of a dtype."""
    return f"gemm_{_identifier(dtype)}.cu"


def stacked_name(dtype: DType, kind: Kind) -> str:
    """The file with the kernels of a dtype for batches, or for groups."""
    return f"{kind.word}_{_identifier(dtype)}.cu"


def fused_suffix(number: int) -> str:
    """The suffix of names of the epilogue with that number, from 0: the first keeps its functions
    when others join it.
    """
    return "_fused" if number == 0 else f"_fused_{number + 1}"


def fused_name(dtype: DType, number: int = 0) -> str:
    """The file with the kernels of a dtype that compute the library's epilogue of that number."""
    return f"{fused_suffix(number)[1:]}_{_identifier(dtype)}.cu"


def benchmark_name(dtype: DType) -> str:
    """The file with the benchmark of a dtype."""
    return f"benchmark_{_identifier(dtype)}.cu"


def export_library(library: Library, written: date, *, torch: bool = False) -> dict[str, str]:
    """Name and text of each file; with ``torch`` also those of a module with a custom operator.

    The header, and so the functions, are the same for every library. Raises ExportError for a
    family with arguments of its own.

    With ``library.fused`` there are also a header, sources and self-tests of the functions that
    compute its epilogues; the other header is the same as ever.
    """
    _require_plain_arguments(library)
    parts = {part.dtype: part for part in library.parts}
    first_line = f"{WRITTEN_BY}{__version__} on {written.isoformat()}."
    sources = {
        dtype: _source_context(dtype, parts.get(dtype), library.device) for dtype in LIBRARY_DTYPES
    }
    stacked = _stacked_contexts(library)
    tuned = {(part.kind, part.dtype) for part in library.stacked}
    stacked_files = {
        stacked_name(dtype, kind): context
        for (kind, dtype), context in stacked.items()
        if (kind, dtype) in tuned
    }
    untuned = [context for key, context in stacked.items() if key not in tuned]
    fused = [
        _epilogue_context(number, parts, library.device)
        for number, parts in enumerate(library.fused)
    ]
    fused_files = {
        fused_name(part.dtype, number): context
        for number, (parts, one) in enumerate(zip(library.fused, fused, strict=True))
        for part, context in zip(parts, one.dtypes, strict=True)
    }
    contexts = (*sources.values(), *stacked_files.values(), *fused_files.values())
    suffixes = [str(one["arch_suffix"]) for each in contexts for one in _variants(each)]
    shared = {
        "first_line": first_line,
        "first_text": first_line.removeprefix("// "),
        "provenance": "\n".join(_provenance(library, first_line)),
        "api_version": API_VERSION,
        "most_groups": MAX_GROUPS,
        "arch": library.device.arch,
        "suffix": max(suffixes, default=""),
        "dtypes": list(sources.values()),
        **{f"{kind.word}_dtypes": _of_kind(stacked, kind) for kind in STACKED},
        "sources": [
            *map(source_name, LIBRARY_DTYPES),
            *([FALLBACKS] if untuned else []),
            *(*stacked_files, *fused_files),
        ],
        "headers": ["autogemm.h", *(["autogemm_fused.h"] if fused else [])],
        "tests": [
            *("selftest", *(f"selftest{kind.suffix}" for kind in STACKED)),
            *(f"selftest{one.suffix}" for one in fused),
        ],
        "epilogues": fused,
        "benchmarks": [benchmark_name(dtype).removesuffix(".cu") for dtype in parts],
        "sizes": _tested_sizes(library),
    }
    files = {name: (f"library/{name}.jinja", shared) for name in FILES}
    for dtype, context in sources.items():
        files[source_name(dtype)] = ("library/gemm.cu.jinja", shared | context)
    for part in library.parts:
        own = shared | sources[part.dtype] | _benchmark_context(part)
        files[benchmark_name(part.dtype)] = ("library/benchmark.cu.jinja", own)
    for name, context in chain(stacked_files.items(), fused_files.items()):
        files[name] = ("library/gemm.cu.jinja", shared | context)
    for kind in STACKED:
        own = shared | context_of_kind(kind) | {"dtypes": _of_kind(stacked, kind)}
        files[f"selftest{kind.suffix}.cu"] = ("library/selftest_stacked.cu.jinja", own)
    for one in fused:
        files["autogemm_fused.h"] = ("library/autogemm_fused.h.jinja", shared)
        own = shared | {"fused_dtypes": one.dtypes}
        files[f"selftest{one.suffix}.cu"] = ("library/selftest_fused.cu.jinja", own)
    for name in TORCH_FILES if torch else ():
        files[name] = (f"library/{name}.jinja", shared)
    templates = environment()
    texts = {
        name: templates.get_template(template).render(context)
        for name, (template, context) in files.items()
    }
    if untuned:
        source = templates.get_template("library/gemm.cu.jinja")
        texts[FALLBACKS] = "\n".join(source.render(shared | one) for one in untuned)
    return texts


def _require_plain_arguments(library: Library) -> None:
    for variant in (one for part in library.all_parts for one in part.variants):
        if variant.family.arguments:
            own = " ".join(rule.name for rule in variant.family.arguments)
            raise ExportError(
                f"kernels of {variant.family.name} take arguments of their own ({own}), for which "
                "the functions of a library have no place: export the kernel alone"
            )


def _provenance(library: Library, first_line: str) -> Iterator[str]:
    device = library.device
    yield from (first_line, "//", *comment("", f"GEMM for {device.name} ({device.sm})."))
    for part in library.all_parts:
        yield "//"
        for finding in part.findings:
            yield from comment(f"{part.label}: ", finding)


def _tested_sizes(library: Library) -> list[tuple[int, ...]]:
    tuned = (size for part in library.parts for size in part.tuned)
    return list(dict.fromkeys(tuple(map(min, size, MOST_TESTED)) for size in tuned))


@dataclass(frozen=True, slots=True)
class _EpilogueContext:
    """An epilogue as templates read it: what its names end in, its macro, its text, the contexts of
    its element types.
    """

    suffix: str
    macro: str
    text: str
    dtypes: list[dict[str, object]]


def _epilogue_context(number: int, parts: Sequence[Part], device: Device) -> _EpilogueContext:
    suffix = fused_suffix(number)
    return _EpilogueContext(
        suffix,
        "AUTOGEMM_EPILOGUE" + suffix.removeprefix("_fused"),
        str(parts[0].epilogue),
        [_source_context(part.dtype, part, device, suffix) for part in parts],
    )


def _stacked_contexts(library: Library) -> dict[tuple[Kind, DType], dict[str, object]]:
    """The contexts of all functions for batches and groups, tuned or not."""
    parts = {(part.kind, part.dtype): part for part in library.stacked}
    return {
        (kind, dtype): _source_context(
            *(dtype, parts.get((kind, dtype)), library.device, kind.suffix), kind=kind
        )
        for kind in STACKED
        for dtype in LIBRARY_DTYPES
        if has_functions(dtype, kind)
    }


def _of_kind(
    contexts: dict[tuple[Kind, DType], dict[str, object]], kind: Kind
) -> list[dict[str, object]]:
    return [context for (one, _), context in contexts.items() if one is kind]


def _source_context(
    dtype: DType,
    part: Part | None,
    device: Device,
    suffix: str = "",
    *,
    kind: Kind = Kind.ONE,
) -> dict[str, object]:
    """The values from which the source of a dtype is rendered, and those needed to call its
    functions."""
    names = _library_names(dtype)
    signature = kind.signature
    epilogue = PLAIN if part is None else part.epilogue
    identifier = _identifier(dtype) + suffix
    variants = (
        [] if part is None else [_variant(identifier, *one) for one in enumerate(part.variants)]
    )
    return {
        **_context_of_call(signature, names),
        **context_of_kind(kind),
        "dtype": dtype.label,
        "dtype_c": dtype.c.label,
        "identifier": identifier,
        **_context_of_bytes(dtype),
        "function": _function(dtype) + suffix,
        "fused": None,
        "has_columns": epilogue.is_plain and not kind.is_grouped,
        "type_ab": names[ProblemType.AB],
        "type_c": names[ProblemType.C],
        "arguments_by_columns": signature.in_call(_BY_COLUMNS),
        "test_call": signature.in_call(_IN_TEST, "p."),
        "test_call_by_columns": signature.in_call(_IN_TEST | _BY_COLUMNS_IN_TEST, "p."),
        "alignment": ALIGNMENT_BYTES,
        "variants": variants,
        "has_tensor_maps": any(one["tensor_maps"] for one in variants),
        "renames_shared": any(one["has_shared_arrays"] for one in variants),
        "num_configs": 0 if part is None else len(part.configs),
        "order": [] if part is None else list(part.by_merit),
        "conditions": [] if part is None else _conditions(part, device),
        "tuned": [] if part is None else _tuned(part),
        "rule_title": "" if part is None else f"The config for a size: {part.rule}.",
        "rule": "" if part is None else rule_text(part.rule, part.configs, kind.counted),
        **({} if epilogue.is_plain else _fused_context(dtype, epilogue)),
    }


def _context_of_bytes(dtype: DType) -> dict[str, object]:
    """What is different where A and B, or C, have elements of 8 bits."""
    names = _library_names(dtype)
    narrow = (dtype.ab, dtype.c) if dtype.c.saturates else (dtype.ab,)
    return {
        "dtype_ab": dtype.ab.label,
        "has_bytes": dtype.size_bytes == 1,
        "is_integer": dtype.ab.is_integer,
        "has_exact_sums": dtype.has_exact_sums,
        "narrow": dtype.c.saturates,
        "byte_floats": [one.label for one in dict.fromkeys(narrow) if one.saturates],
        "test_type_ab": _TEST_TYPES.get(dtype.ab, names[ProblemType.AB]),
        "test_type_c": _TEST_TYPES.get(dtype.c, names[ProblemType.C]),
    }


def _context_of_call(signature: Signature, names: CNames) -> dict[str, object]:
    """The arguments of functions that queue a GEMM: declared, passed on, and by their names."""
    return {
        "parameters": signature.in_host_code(names),
        "arguments": signature.in_call({}),
        "passed": signature.names,
    }


def _fused_context(dtype: DType, epilogue: Epilogue) -> dict[str, object]:
    """Additional values for a source with an epilogue: its inputs are arguments behind those of the
    GEMM, in the order of the text, and behind them the second output."""
    problem = Problem(1, 1, 1, library_layouts(dtype)[0], dtype).with_epilogue(epilogue)
    own = [rule.argument for rule in (*epilogue_rules(problem), *output_rules(problem))]
    names = _library_names(dtype)
    signature = gemm_signature(own, workspace=True)
    in_test = {one.name: f"x.{one.name}{'.data' if one.is_array else ''}" for one in own}
    return {
        **_context_of_call(signature, names),
        "fused": fused_of(problem),
        "epilogue": str(epilogue),
        "extra_parameters": Signature(tuple(own)).in_host_code(names),
        "extra_arguments": Signature(tuple(own)).in_call({}),
        "extra_types": {one.name: names[one.type] for one in own if one.type is not None},
        "test_call": signature.in_call(_IN_TEST | in_test, "p."),
    }


def _variants(context: dict[str, object]) -> list[dict[str, object]]:
    found = context["variants"]
    assert isinstance(found, list)
    return found


def _tuned(part: Part) -> list[tuple[int, ...]]:
    pairs = zip(part.tuned, part.best_at, strict=True)
    return [(*size, number) for size, number in pairs if number is not None]


def _benchmark_context(part: Part) -> dict[str, object]:
    """The context of an exported program for the tuned layout, and the sizes to be timed. Where
    the library has no functions for that layout, it is the first that it has.
    """
    layouts = library_layouts(part.dtype)
    layout = part.layout if part.layout in layouts else layouts[0]
    problem = Problem(1, 1, 1, layout, part.dtype)
    return {
        **program_context(problem, "library_gemm"),
        "library_type_ab": _library_names(part.dtype)[ProblemType.AB],
        # That of 8-bit floats; autogemm.h includes all others.
        "byte_header": part.dtype.ab.host_header if part.dtype.ab.saturates else "",
        "namespace": "autogemm_benchmark",
        "library_function": _function(part.dtype),
        "benchmarked": list(part.tuned),
    }


def _identifier(dtype: DType) -> str:
    return dtype.label.replace("-", "_")


def _function(dtype: DType) -> str:
    """The name of a dtype's function, which ends in the type of C where the dtype's does."""
    return dtype.ab.export_function + _identifier(dtype).removeprefix(dtype.ab.label)


def _library_names(dtype: DType) -> CNames:
    """The header's names of the element types."""
    known: dict[ArgumentType, str] = {
        one: _ELEMENT_TYPES.get(one, one.host_type) for one in Element
    }
    return {
        **known,
        ProblemType.AB: known[dtype.ab],
        ProblemType.B: known[dtype.b],
        ProblemType.C: known[dtype.c],
    }


def _conditions(part: Part, device: Device) -> list[tuple[int, list[str]]]:
    """Number of each config, and the sizes at which it is meant to be used unless it is all of
    them."""
    first: dict[int, Variant] = {}
    for variant in part.variants:
        first.setdefault(variant.config_number, variant)
    found = [
        (
            number,
            Host(one.family, one.config, one.problem).size_conditions(device, part.kind.counted),
        )
        for number, one in first.items()
    ]
    return [(number, [f"({text})" for text in texts]) for number, texts in found if texts]


def _variant(identifier: str, index: int, variant: Variant) -> dict[str, object]:
    source = render(variant.family, variant.config, variant.problem)
    host = Host(variant.family, variant.config, variant.problem)
    layout = str(variant.problem.layout)
    return {
        "index": f"{identifier}_{index}",
        "config": variant.config_number,
        "name": printable(f"config {variant.config_number} {layout}, {variant.edges}"),
        "layout": layout,
        "text": source.text,
        "has_shared_arrays": bool(shared_arrays(source)),
        "renamed": [*host.kernels, *shared_arrays(source)],
        "arch_suffix": source.arch_suffix,
        **kernel_marks(source),
        **host.context(_library_names(variant.problem.dtype)),
    }
