"""Tensor maps in a family's YAML: what need not be written, and the rules that TMA has for them."""

from autogemm.model.dtypes import Element
from autogemm.space.schema import ConstraintForm, TensorMapForm
from autogemm.support.errors import FamilyError

# Of each matrix: columns and rows as stored, leading dimension.
_STORED = {
    "A": (["M if trans_a else K", "K if trans_a else M"], "lda"),
    "B": (["K if trans_b else N", "N if trans_b else K"], "ldb"),
    "C": (["N", "M"], "ldc"),
}
# Bytes that addresses, rows and offsets are multiples of, and the most elements of a box each way
# (CUDA driver API, cuTensorMapEncodeTiled).
ALIGNMENT_BYTES = 16
MAX_BOX = 256


def completed(form: TensorMapForm) -> TensorMapForm:
    """With extent and leading dimension of the matrix; of the workspace they must be there.

    Raises FamilyError.
    """
    own = {"element": form.element, "extent": form.extent, "ld": form.ld}
    if form.matrix == "workspace":
        missing = [name for name, value in own.items() if value is None]
        if missing:
            raise FamilyError(f"a map of the workspace says its {' '.join(missing)}")
        return form
    given = [name for name in ("extent", "ld") if own[name] is not None]
    if given or form.offset_bytes != "0":
        named = " ".join(given) or "offset_bytes"
        raise FamilyError(f"{named}: {form.matrix} has its own, leave it out")
    extent, ld = _STORED[form.matrix]
    return form.model_copy(update={"extent": extent, "ld": ld})


def element_of(form: TensorMapForm) -> Element | None:
    """The type that was written, if one was. Raises FamilyError for an unknown one."""
    if form.element is None:
        return None
    for element in Element:
        if element.label == form.element:
            return element
    known = ", ".join(element.label for element in Element)
    raise FamilyError(f"unknown element type {form.element!r}; known: {known}")


def rules_of(form: TensorMapForm) -> list[ConstraintForm]:
    """What a legal config keeps, of a completed form."""
    element = element_of(form)
    own_bytes = "bytes_c" if form.matrix == "C" else "bytes_ab"
    num_bytes = str(element.size_bytes) if element else own_bytes
    inner, outer = form.box
    swizzle, row = _factor(form.swizzle), f"{_factor(inner)} * {num_bytes}"
    rules = [
        (
            f"{_factor(form.ld or '')} * {num_bytes} % {ALIGNMENT_BYTES} == 0",
            f"TMA moves rows that begin at multiples of {ALIGNMENT_BYTES} bytes",
        ),
        (
            f"min({inner}, {outer}) >= 1 and max({inner}, {outer}) <= {MAX_BOX}",
            f"a box of TMA has 1 to {MAX_BOX} elements each way",
        ),
        (
            f"{row} % {ALIGNMENT_BYTES} == 0",
            f"a row of a box is a multiple of {ALIGNMENT_BYTES} bytes",
        ),
    ]
    if form.swizzle != "0":
        turned = f"{swizzle} in (32, 64, 128) and {row} == {swizzle}"
        if not form.swizzle.isdigit():
            turned = f"{swizzle} == 0 or {turned}"
        because = "a swizzle turns 32, 64 or 128 bytes, which is a row of the box"
        rules.append((turned, because))
    if form.matrix == "C":
        # As seen on an H100: where a row ends within a piece, its rest is written, too.
        rules.append(
            (
                f"N * {num_bytes} % {ALIGNMENT_BYTES} == 0",
                f"TMA writes pieces of {ALIGNMENT_BYTES} bytes as a whole, beyond the end of a row",
            )
        )
    if form.matrix == "workspace":
        rules.append(
            (
                f"{_factor(form.offset_bytes)} % {ALIGNMENT_BYTES} == 0",
                f"what TMA reads begins at a multiple of {ALIGNMENT_BYTES} bytes",
            )
        )
    elif element is not None:
        rules.append(
            (f"{own_bytes} == {num_bytes}", f"{form.matrix} is read as elements of its own size")
        )
    unless = "" if form.when == "1" else f"not ({form.when}) or "
    return [
        ConstraintForm(require=f"{unless}{rule}", because=f"{form.name}: {because}")
        for rule, because in rules
    ]


def _factor(text: str) -> str:
    """In brackets, unless it is a name or a number."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"
