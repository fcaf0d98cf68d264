"""Many kernels as one small C++ library: header, source, self-test, benchmark, CMakeLists.txt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from autogemm.codegen.export.host import Host
from autogemm.codegen.export.standalone import (
    WRITTEN_BY,
    comment,
    host_names,
    kernel_marks,
    printable,
)
from autogemm.codegen.rendering import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.rule import Leaf, Modelled, Nearest, Rule, Size, Split, TimeModel, Tree
from autogemm.model.signature import gemm_signature
from autogemm.space import ALIGNMENT_BYTES, Family
from autogemm.support.errors import ExportError
from autogemm.support.templating import environment
from autogemm.support.version import __version__

# The arguments of functions that queue a GEMM, behind the layout and before the stream.
_EXPORTED = gemm_signature(workspace=True)
# Where the self-test has what is no member of its problem.
_IN_TEST = {
    **{name: name for name in ("A", "B", "C", "workspace_bytes")},
    **{f"ld{name}": f"p.ld{name}()" for name in "abc"},
    "workspace": "workspace.data",
}
FILES = ("autogemm.h", "autogemm.cu", "check.h", "selftest.cu", "benchmark.cu", "CMakeLists.txt")
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


@dataclass(frozen=True, slots=True)
class Library:
    """The content of a library.

    ``configs`` are what the rule numbers; ``by_merit`` their positions, the one that loses least
    over all tuned sizes first; ``best_at`` the fastest of them at each tuned size. ``findings``
    are lines for the head: where times come from, what the rule loses.
    """

    device: Device
    rule: Rule
    configs: tuple[Config, ...]
    variants: tuple[Variant, ...]
    by_merit: tuple[int, ...]
    tuned: tuple[Size, ...]
    best_at: tuple[int | None, ...]
    findings: tuple[str, ...]


def export_library(library: Library, written: date, *, torch: bool = False) -> dict[str, str]:
    """Name and text of each file; with ``torch`` also those of a module with a custom operator."""
    for variant in library.variants:
        if variant.family.arguments:
            own = " ".join(rule.name for rule in variant.family.arguments)
            raise ExportError(
                f"kernels of {variant.family.name} take arguments of their own ({own}), for which "
                "the functions of a library have no place: export the kernel alone"
            )
    first_line = f"{WRITTEN_BY}{__version__} on {written.isoformat()}."
    title = comment("", f"FP32 GEMM for {library.device.name} ({library.device.sm}).")
    findings = [line for finding in library.findings for line in comment("", finding)]
    tested = [tuple(map(min, size, MOST_TESTED)) for size in library.tuned]
    variants = [_variant(index, one) for index, one in enumerate(library.variants)]
    context = {
        "first_line": first_line,
        "first_text": first_line.removeprefix("// "),
        "parameters": _EXPORTED.in_host_code(host_names(DType.F32)),
        "arguments": _EXPORTED.in_call({}),
        "passed": _EXPORTED.names,
        "test_call": _EXPORTED.in_call(_IN_TEST, "p."),
        "alignment": ALIGNMENT_BYTES,
        "provenance": "\n".join([first_line, "//", *title, "//", *findings]),
        "arch": library.device.arch,
        "kernels": library.configs,
        "variants": variants,
        "has_tensor_maps": any(one["tensor_maps"] for one in variants),
        "suffix": max((str(one["arch_suffix"]) for one in variants), default=""),
        "order": list(library.by_merit),
        "conditions": _conditions(library),
        "tuned": [
            (*size, number)
            for size, number in zip(library.tuned, library.best_at, strict=True)
            if number is not None
        ],
        "rule_title": f"The config for a size: {library.rule}.",
        "rule": rule_text(library.rule, library.configs),
    }
    sizes = {"selftest.cu": list(dict.fromkeys(tested)), "benchmark.cu": list(library.tuned)}
    templates = environment()
    return {
        name: templates.get_template(f"library/{name}.jinja").render(
            context | {"sizes": sizes.get(name, [])}
        )
        for name in (*FILES, *(TORCH_FILES if torch else ()))
    }


def _conditions(library: Library) -> list[tuple[int, list[str]]]:
    """Number of each config, and at which sizes it is meant to be used, if not at all of them."""
    first: dict[int, Variant] = {}
    for variant in library.variants:
        first.setdefault(variant.config_number, variant)
    found = [
        (number, Host(one.family, one.config, one.problem).size_conditions(library.device))
        for number, one in first.items()
    ]
    return [(number, [f"({text})" for text in texts]) for number, texts in found if texts]


def _variant(index: int, variant: Variant) -> dict[str, object]:
    source = render(variant.family, variant.config, variant.problem)
    host = Host(variant.family, variant.config, variant.problem)
    layout = str(variant.problem.layout)
    return {
        "index": index,
        "config": variant.config_number,
        "name": printable(f"config {variant.config_number} {layout}, {variant.edges}"),
        "layout": layout,
        "text": source.text,
        "arch_suffix": source.arch_suffix,
        **kernel_marks(source),
        **host.context(host_names(variant.problem.dtype)),
    }


def rule_text(rule: Rule, configs: Sequence[Config]) -> str:
    """The body of a C++ function of M, N and K that returns the config's number."""
    context: dict[str, object]
    match rule:
        case Nearest(sizes, of_size):
            points = [_point(*pair) for pair in zip(sizes, of_size, strict=True)]
            context = {"kind": "nearest", "points": points}
        case Modelled(models, of_model):
            pairs = zip(models, of_model, strict=True)
            rows = [_model(model, number, configs[number]) for model, number in pairs]
            context = {"kind": "models", "models": rows}
        case Tree(root):
            context = {"kind": "tree", "root": _node(root, configs)}
    return environment().get_template("library/rule.cu.jinja").render(context)


def _point(size: Size, number: int) -> dict[str, object]:
    logs = ", ".join(f"{math.log2(extent):.9g}" for extent in size)
    return {"logs": logs, "kernel": number, "label": "x".join(map(str, size))}


def _model(model: TimeModel, number: int, config: Config) -> dict[str, object]:
    shape = (model.bm, model.bn, model.bk, model.parts, model.per_wave)
    fitted = (model.launch_us, model.depth_us, model.work_us)
    return {
        "numbers": ", ".join(
            [*map(str, shape), str(model.is_even).lower(), *(f"{value:.5g}" for value in fitted)]
        ),
        "kernel": number,
        "label": f"{config.family}, within {100 * model.error:.0f} %",
    }


def _node(node: Split | Leaf, configs: Sequence[Config]) -> dict[str, object]:
    if isinstance(node, Leaf):
        config = configs[node.kernel]
        values = " ".join(f"{name}={value}" for name, value in list(config)[:3])
        return {"kernel": node.kernel, "label": f"{config.family} {values}"}
    return {
        "feature": node.feature,
        "threshold": node.threshold,
        "below": _node(node.below, configs),
        "above": _node(node.above, configs),
    }
