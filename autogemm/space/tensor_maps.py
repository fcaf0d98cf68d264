"""Tensor maps in a family's YAML: what need not be written, and the rules that TMA has for them."""

from autogemm.model.dtypes import Element
from autogemm.model.signature import ProblemType
from autogemm.space.schema import ConstraintForm, TensorMapForm
from autogemm.support.errors import FamilyError

# Columns and rows of each matrix as stored, and its leading dimension. For a B whose rows alternate
# between two matrices, each row of a map is a pair of rows.
_STORED = {
    "A": (["M if trans_a else K", "K if trans_a else M"], "lda"),
    "B": (
        [
            "(ldb + K if gate == 'interleaved' else K) if trans_b else "
            "(N if gate == 'none' else 2 * N)",
            "(2 * N if gate == 'halves' else N) if trans_b else K",
        ],
        "2 * ldb if gate == 'interleaved' else ldb",
    ),
    "C": (["N", "M"], "ldc"),
    "input": (["N", "M"], "N"),
}
# Bytes that addresses, rows and offsets are multiples of, and the most elements of a box each way
# (CUDA driver API, cuTensorMapEncodeTiled).
ALIGNMENT_BYTES = 16
MAX_BOX = 256
# The element type of A and B, whichever it is.
_OF_OPERANDS = ProblemType.AB.value


def completed(form: TensorMapForm) -> TensorMapForm:
    """The form with the matrix's extent and leading dimension; a workspace's must be there.

    Raises FamilyError.
    """
    own = {"element": form.element, "extent": form.extent, "ld": form.ld}
    if form.matrix == "workspace":
        missing = [name for name, value in own.items() if value is None]
        if missing:
            raise FamilyError(f"a tensor map of the workspace needs {' '.join(missing)}")
        return form
    given = [name for name in ("extent", "ld") if own[name] is not None]
    if given or form.offset_bytes != "0":
        named = " ".join(given) or "offset_bytes"
        raise FamilyError(f"{named}: {form.matrix} has its own, leave it out")
    extent, ld = _STORED[form.matrix]
    return form.model_copy(update={"extent": extent, "ld": ld})


def element_of(form: TensorMapForm) -> Element | None:
    """The type that was written; None where it is that of the problem's matrix, or of A and B.

    Raises FamilyError for an unknown one.
    """
    known = {element.label: element for element in Element}
    if form.element == _OF_OPERANDS and form.matrix != "C":
        return None
    if form.element is not None and form.element not in known:
        raise FamilyError(f"unknown element type {form.element!r}; known: {', '.join(known)}")
    return known[form.element] if form.element is not None else None


def rules_of(form: TensorMapForm) -> list[ConstraintForm]:
    """The rules of TMA for a completed form, which legal configs keep."""
    element = element_of(form)
    own_bytes = "bytes_c" if form.matrix in {"C", "input"} else "bytes_ab"
    num_bytes = str(element.size_bytes) if element else own_bytes
    inner, outer = form.box
    swizzle, row = _factor(form.swizzle), f"{_factor(inner)} * {num_bytes}"
    rules = []

    def rule(require: str, because: str) -> None:
        unless = "" if form.when == "1" else f"not ({form.when}) or "
        because = f"{form.name}: {because}"
        rules.append(ConstraintForm(require=f"{unless}{require}", because=because))

    def aligned(text: str, because: str) -> None:
        rule(f"{text} % {ALIGNMENT_BYTES} == 0", because.format(f"{ALIGNMENT_BYTES} bytes"))

    aligned(
        f"{_factor(form.ld or '')} * {num_bytes}", "TMA moves rows that begin at multiples of {}"
    )
    size = f"min({inner}, {outer}) >= 1 and max({inner}, {outer}) <= {MAX_BOX}"
    rule(size, f"a box of TMA has 1 to {MAX_BOX} elements each way")
    aligned(row, "a row of a box is a multiple of {}")
    if form.swizzle != "0":
        fits = f"{swizzle} in (32, 64, 128) and {row} == {swizzle}"
        unless_none = "" if form.swizzle.isdigit() else f"{swizzle} == 0 or "
        rule(f"{unless_none}{fits}", "a swizzle is of 32, 64 or 128 bytes, a row of the box")
    if form.matrix == "C":
        # As seen on an H100: where a row ends within such a chunk, its rest is written, too.
        aligned(f"N * {num_bytes}", "TMA writes chunks of {} as a whole, beyond the end of a row")
    if form.matrix == "workspace":
        aligned(_factor(form.offset_bytes), "what TMA reads begins at a multiple of {}")
    elif element is not None:
        rule(f"{own_bytes} == {num_bytes}", f"{form.matrix} is read as elements of its own size")
    return rules


def _factor(text: str) -> str:
    """The text, in brackets unless it is a name or a number."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"
