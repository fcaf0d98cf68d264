"""Config in, CUDA text out: no GPU, no clock, no file but the template, no environment."""

from collections.abc import Mapping

from autogemm.codegen.fused import Fused, fused_of
from autogemm.model.config import Config, Value
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.space import Family, derive_values, signature_of
from autogemm.support.errors import FamilyError
from autogemm.support.templating import environment, rendered

# Names that a kernel template may read. Sizes are not among them: kernels take M, N and K at run
# time, so one text serves all problems that need the same guards and vector widths.
CONTEXT_NAMES = frozenset(
    {
        *("family", "config", "derived", "layout", "trans_a", "trans_b"),
        *("dtype_ab", "dtype_b", "operands", "dtype_c", "type_ab", "type_c", "signature", "fused"),
        *("batched", "grouped", "masked", "divides_k", "overlaps"),
    }
)


# Prefix of the formula of a kernel that computes several products.
_BATCH = """\
// A batch of such products in one launch. The next one's matrices begin batch_rows_a rows of A,
// batch_rows_b of B and batch_rows_c of C, as stored, behind those of the one before; 0: all share
// the operand.
//
"""
# The same where groups divide K.
_DIVIDED = """\
// Rows of A and B, as stored, belong to groups: {rows}
// Each group has a product and a C of its own, one behind the other.
//
"""
_MASKED_RANGE = "each has K / groups of them, of which the\n// first counts[g] are multiplied."
_RANGE = "offsets[g] is the first of group g,\n// offsets[g + 1] the one behind its last."
# The same where rows of A and C belong to groups, masked or not.
_MASKED_GROUPS = """\
// Rows of A and C belong to groups, each of which has M / groups of them: the first counts[g] are
// those of group g. Each group has a B of its own, one behind the other. Other rows are left as
// they are.
//
"""
_GROUPS = """\
// Rows of A and C belong to groups: offsets[g] is the first of group g, offsets[g + 1] the one
// behind its last. Each group has a B of its own, one behind the other. Rows of no group are left
// as they are.
//
"""


def template_context(family: Family, config: Config, problem: Problem) -> dict[str, object]:
    """The values that a kernel template may read, by name (CONTEXT_NAMES).

    The values become text of a kernel that is compiled and run, and a config may come from
    anywhere, so only values that the family declares are accepted. Raises UsageError.
    """
    config = family.declared(config)
    return {
        "family": family.name,
        "config": _Read(config.as_dict()),
        "derived": _Read(derive_values(family, config, problem)),
        "layout": str(problem.layout),
        "trans_a": problem.layout.trans_a,
        "trans_b": problem.layout.trans_b,
        "dtype_ab": problem.dtype.ab.label,
        "dtype_b": problem.dtype.b.label,
        "operands": problem.dtype.operands,
        "dtype_c": problem.dtype.c.label,
        "type_ab": problem.dtype.ab.c_name,
        "type_c": problem.dtype.c.c_name,
        "signature": signature_of(family, config, problem),
        "fused": fused_of(problem),
        "batched": not problem.batch.is_one,
        "grouped": not (problem.groups.is_none or problem.divides_k),
        "divides_k": problem.divides_k,
        "masked": problem.groups.masked,
        "overlaps": family.overlaps(config),
    }


def render(family: Family, config: Config, problem: Problem) -> KernelSource:
    """The CUDA source of one config, specialised for the problem's layout, edges and alignment.

    Raises FamilyError when the template is broken, naming the template and the line, and for a
    family that has none; UsageError for a config whose values are not those of the family.
    """
    path = family.template_path
    if path is None:
        raise FamilyError(
            f"{family.name} was recorded elsewhere, without its source: there is nothing to render"
        )
    context = template_context(family, config, problem)
    # The names that were read are known after rendering.
    text = rendered(path, context)
    text = _provenance(family, context) + _introduction(problem) + text
    source = KernelSource(family.name, family.template_sha256, config, problem.layout, text)
    if (fused := fused_of(problem)) and not _has_epilogue(text, fused):
        raise FamilyError(f"template {path}: it knows no epilogue but alpha * acc + beta * c[m, n]")
    if family.needs_sm_90a and not source.arch_suffix:
        raise FamilyError(f"template {path}: a family for 90a includes parts/ptx/sm_90a.cu.jinja")
    return source


def _has_epilogue(text: str, fused: Fused) -> bool:
    """Whether the kernel says that it computes the epilogue, and its second output."""
    words = _as_one_line(text)
    return f"= {fused.text} " in words and (fused.output is None or fused.output.text in words)


def _introduction(problem: Problem) -> str:
    """The words before the formula where there are several products."""
    if problem.divides_k:
        return _DIVIDED.format(rows=_MASKED_RANGE if problem.groups.masked else _RANGE)
    if not problem.groups.is_none:
        return _MASKED_GROUPS if problem.groups.masked else _GROUPS
    return "" if problem.batch.is_one else _BATCH


def _as_one_line(text: str) -> str:
    """The text without line breaks and comment marks, so that a folded comment can be searched."""
    return " ".join(text.replace("//", " ").split())


class _Read(dict[str, Value]):
    """Values by name that remember which of them were read."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__(values)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Value:
        self.names.add(name)
        return super().__getitem__(name)


def _provenance(family: Family, context: dict[str, object]) -> str:
    """The comment that begins every emitted file: its family and config.

    It names the parameters that shape the text or its launches. Two configs that differ only
    elsewhere are one kernel, and two that are launched differently are two. A parameter that shapes
    launches alone is not named while it has its default: a new one leaves texts as they are.
    """
    config, derived = context["config"], context["derived"]
    assert isinstance(config, _Read) and isinstance(derived, _Read)
    shaping = config.names | family.parameters_below(derived.names)
    defaults = {one.name: one.default for one in family.parameters}
    launching = {name for name in family.launch_parameters if config.get(name) != defaults[name]}
    head = vars(environment().get_template("parts/head.cu.jinja").module)
    values = {name: value for name, value in config.items() if name in shaping | launching}
    return f"{head['provenance'](family.name, values)}\n"
