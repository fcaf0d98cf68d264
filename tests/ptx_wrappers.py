"""The functions of emitted kernels that hold PTX, taken out of a source, and what each must be.

`ptx_wrappers.yaml` has the table: the text of each wrapper, the section of the PTX ISA manual, why
it is so, and what of it no check on a GPU can see. It is held by hand, unlike the golden sources.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

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


@dataclass(frozen=True)
class Wrapper:
    """One entry of the table; ``name`` is a pattern."""

    name: str
    section: str
    texts: tuple[str, ...]
    because: tuple[str, ...]
    unseen: str

    def text_of(self, emitted: Emitted) -> str | None:
        """Return the text of this entry that the wrapper has; None if it has none of them."""
        for text in self.texts:
            if re.fullmatch(_pattern(text, emitted), emitted.body):
                return text
        return None


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
    assert stray is None, "PTX outside of a wrapper"
    return tuple(sorted(found, key=lambda one: one.start))


@cache
def table() -> tuple[Wrapper, ...]:
    """Return all entries."""
    entries = yaml.safe_load(TABLE.read_text())
    return tuple(
        Wrapper(
            name,
            entry["section"],
            tuple([entry["text"]] if isinstance(entry["text"], str) else entry["text"]),
            tuple(entry["because"]),
            entry.get("unseen", ""),
        )
        for name, entry in entries.items()
    )


@cache
def entry_of(name: str) -> Wrapper:
    """Return the entry of a wrapper. Fails where there is none, or more than one."""
    fitting = [entry for entry in table() if re.fullmatch(entry.name, name)]
    assert len(fitting) == 1, f"{name} has {len(fitting)} entries in {TABLE.name}"
    return fitting[0]


def _pattern(text: str, emitted: Emitted) -> str:
    """Return the expression that a wrapper's body must match whole."""
    accumulators = re.search(r"(float|int) \(&d\)\[(\d+)\]", emitted.text)
    kind, count = (accumulators[1], int(accumulators[2])) if accumulators else ("float", 0)
    register = "f" if kind == "float" else "r"
    element = re.search(r"(?:^|_)(bf16|f16|tf32|e4m3|e5m2)(?:x(e4m3|e5m2))?(?:_|$)", emitted.name)
    # Whether an operand of wgmma is stored across k.
    across_a, across_b = (int(major == "m") for major in emitted.name[-2:])
    named = {
        "<type>": element[1] if element else "",
        "<type of b>": (element[2] or element[1]) if element else "",
        "<columns>": str(2 * count),
        "<d>": ", ".join(f"%{i}" for i in range(count)),
        "<outputs>": ",".join(f'"+{register}"(d[{i}])' for i in range(count)),
        "<transposed a>": str(across_a),
        "<transposed b>": str(across_b),
    }
    for name, value in named.items():
        text = text.replace(name, value)
    text = re.sub(r"<\+(\d)>", lambda match: str(count + int(match[1])), text)
    return re.escape(plain(text)).replace("<count>", r"\d+")
