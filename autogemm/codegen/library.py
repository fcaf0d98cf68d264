"""Many kernels as one small C++ library: header, source, self-test, benchmark, CMakeLists.txt."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from autogemm import __version__
from autogemm.codegen.environment import environment
from autogemm.codegen.export import SIGNATURE, Host, comment, printable
from autogemm.codegen.rendering import render
from autogemm.config import Config
from autogemm.device import Device
from autogemm.problem import Problem
from autogemm.rule import Leaf, Nearest, Rule, Size, Split
from autogemm.space import Family

FILES = ("autogemm.h", "autogemm.cu", "check.h", "selftest.cu", "benchmark.cu", "CMakeLists.txt")
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
    """What sets it apart from the config's other variants, in a few words."""


@dataclass(frozen=True, slots=True)
class Library:
    """What a library is made of.

    ``configs`` are what the rule numbers, ``labels`` what they are called; ``by_merit`` their
    positions, the one that loses least over all tuned sizes first. ``findings`` are lines for the
    head: where times come from, what the rule loses.
    """

    device: Device
    rule: Rule
    configs: tuple[Config, ...]
    variants: tuple[Variant, ...]
    by_merit: tuple[int, ...]
    tuned: tuple[Size, ...]
    findings: tuple[str, ...]


def export_library(library: Library, written: date) -> dict[str, str]:
    """Name and text of each file."""
    signature = f"{SIGNATURE}{__version__} on {written.isoformat()}."
    provenance = "\n".join(
        [
            signature,
            "//",
            *comment("", f"FP32 GEMM for {library.device.name} ({library.device.sm})."),
            "//",
            *(line for finding in library.findings for line in comment("", finding)),
        ]
    )
    tested = [
        tuple(min(extent, most) for extent, most in zip(size, MOST_TESTED, strict=True))
        for size in library.tuned
    ]
    context = {
        "signature": signature,
        "signature_text": signature.removeprefix("// "),
        "provenance": provenance,
        "arch": library.device.arch,
        "kernels": library.configs,
        "variants": [_variant(index, one) for index, one in enumerate(library.variants)],
        "order": list(library.by_merit),
        "rule_title": f"The config for a size: {library.rule}.",
        "rule_lines": list(rule_lines(library.rule, library.configs)),
    }
    sizes = {"selftest.cu": list(dict.fromkeys(tested)), "benchmark.cu": list(library.tuned)}
    templates = environment()
    return {
        name: templates.get_template(f"library/{name}.jinja").render(
            context | {"sizes": sizes.get(name, [])}
        )
        for name in FILES
    }


def _variant(index: int, variant: Variant) -> dict[str, object]:
    source = render(variant.family, variant.config, variant.problem)
    host = Host(variant.family, source, variant.problem)
    layout = str(variant.problem.layout)
    return {
        "index": index,
        "config": variant.config_number,
        "name": printable(f"config {variant.config_number} {layout}, {variant.edges}"),
        "layout": layout,
        "text": source.text,
        "kernel_begin": f"// autogemm:kernel:begin bytes={len(source.text.encode())} "
        f"sha256={source.sha256}",
        "kernel_end": "// autogemm:kernel:end",
        "preconditions": host.preconditions(),
        "vectors": host.vectors(),
        "launches": host.launches(),
        "launch_quantities": host.quantities(*host.launch_expressions()),
        "workspace_quantities": host.quantities(variant.family.workspace_bytes),
        "workspace_bytes": host.workspace_bytes(),
    }


def rule_lines(rule: Rule, configs: Sequence[Config]) -> Iterator[str]:
    """The body of a C function of M, N and K that returns the config's number."""
    if isinstance(rule, Nearest):
        yield from _nearest_lines(rule)
        return
    yield from _node_lines(rule.root, configs, 1)


def _node_lines(node: Split | Leaf, configs: Sequence[Config], depth: int) -> Iterator[str]:
    indent = "    " * depth
    if isinstance(node, Leaf):
        values = " ".join(f"{name}={value}" for name, value in list(configs[node.kernel])[:3])
        yield f"{indent}return {node.kernel};  // {configs[node.kernel].family} {values}"
        return
    yield f"{indent}if ({node.feature} <= {node.threshold}) {{"
    yield from _node_lines(node.below, configs, depth + 1)
    yield f"{indent}}}"
    yield from _node_lines(node.above, configs, depth)


def _nearest_lines(rule: Nearest) -> Iterator[str]:
    yield "    // log2 of a tuned M, N and K, and the config that was best there."
    yield "    static constexpr struct {"
    yield "        float m, n, k;"
    yield "        int config;"
    yield "    } TUNED[] = {"
    for size, config in zip(rule.sizes, rule.of_size, strict=True):
        logs = ", ".join(f"{math.log2(extent):.4f}f" for extent in size)
        yield f"        {{{logs}, {config}}},  // {'x'.join(map(str, size))}"
    yield "    };"
    yield "    const float m = std::log2((float)M);"
    yield "    const float n = std::log2((float)N);"
    yield "    const float k = std::log2((float)K);"
    yield "    int nearest = 0;"
    yield "    float least = INFINITY;"
    yield "    for (const auto& tuned : TUNED) {"
    yield "        const float dm = m - tuned.m, dn = n - tuned.n, dk = k - tuned.k;"
    yield "        const float distance = dm * dm + dn * dn + dk * dk;"
    yield "        if (distance < least) {"
    yield "            least = distance;"
    yield "            nearest = tuned.config;"
    yield "        }"
    yield "    }"
    yield "    return nearest;"
