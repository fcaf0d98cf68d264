"""The functions of emitted kernels that hold PTX, taken out of a source, and what each must be.

`ptx_wrappers.yaml` has the table: the text of each wrapper, the section of the PTX ISA manual, why
it is so, and what of it no check on a GPU can see. It is held by hand, unlike the golden sources.
"""

import re
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_suffix(".yaml")
# A function at the left edge down to its closing brace, or a macro down to its last line.
_FUNCTION = re.compile(r"^__device__ [^;{}]*?(\w+)\([^{;]*\{\n.*?^\}\n", re.M | re.S)
_MACRO = re.compile(r"^#define (\w+)\(.*?(?<!\\)\n", re.M | re.S)
_COMMENT = re.compile(r"//[^\n]*")
_SEAM = re.compile(r"\"\s+\"")
_ASM = re.compile(r"\basm\b")


@dataclass(frozen=True)
class Emitted:
    """A wrapper where it stands in a source."""

    name: str
    start: int
    end: int
    text: str

    @property
    def body(self) -> str:
        """The statements, without comments and line breaks."""
        if self.text.startswith("#define"):
            return plain(self.text.partition(")")[2].replace("\\\n", "\n"))
        return plain(self.text[self.text.index("{") + 1 : self.text.rindex("}")])


def plain(code: str) -> str:
    """C without comments, its strings joined and without white space between tokens."""
    code = _SEAM.sub("", _COMMENT.sub("", code))
    parts = code.split('"')
    # Every second part is a string, in which a space is one.
    return '"'.join(
        part if index % 2 else re.sub(r"\s+", " ", re.sub(r"\s*([^\w\s])\s*", r"\1", part))
        for index, part in enumerate(parts)
    ).strip()


def wrappers_of(source: str) -> tuple[Emitted, ...]:
    """All functions and macros with PTX, in order. Fails where PTX stands outside of one."""
    found = [
        Emitted(match[1], match.start(), match.end(), match[0])
        for pattern in (_FUNCTION, _MACRO)
        for match in pattern.finditer(source)
        if _ASM.search(_COMMENT.sub("", match[0]))
    ]
    outside = source
    for one in found:
        outside = outside.replace(one.text, "")
    stray = _ASM.search(_COMMENT.sub("", outside))
    assert stray is None, f"PTX outside of a wrapper: {outside[stray.start() : stray.end() + 80]}"
    return tuple(sorted(found, key=lambda one: one.start))
