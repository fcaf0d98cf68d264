"""Static shared arrays at addresses that are aligned as declared, and no better.

A compiler for this processor aligns arrays to 16 or 32 bytes whatever they are declared as, so that
a float4 read from an array of float would pass by luck.
"""

import platform
import re

# A static `__shared__` variable: how it is aligned, its type, and its name ahead.
STATIC = re.compile(
    r"(?P<extern>\bextern\s+)?\b__shared__\s+(?P<asked>(?:__align__\s*\([^()]*\)\s*)*)"
    r"(?P<type>(?:(?:const|volatile|unsigned|signed|long|short)\s+)*[A-Za-z_][\w:]*"
    r"(?:\s*<[^;{}()]*>)?(?:\s+(?:int|long|char|short))*)(?=\s+[A-Za-z_]\w*\s*[\[;,=])"
)
# In assembly: a section, the alignment of what follows, a label.
DIRECTIVE = re.compile(r"^\t\.(?P<name>section|align|text|data|bss)\b[ \t]*(?P<value>\S*)")


def with_declared_alignment(text: str) -> str | None:
    """Return the kernel's text with an attribute at each static array; None without such arrays.

    GCC raises the alignment of a variable unless an attribute names it. Lines stay what they were.
    """
    found = [one for one in STATIC.finditer(text) if not one["extern"]]
    for one in reversed(found):
        attribute = f"__shared__ __attribute__((aligned(alignof({one['type']})))) "
        text = text[: one.start()] + attribute + text[one.start("asked") :]
    return text if found else None


def least_aligned(assembly: str) -> str:
    """Return the assembly with each thread-local variable off the next better alignment.

    Thread-local is what static shared memory is here. Its first variable is where it begins.
    """
    rows = assembly.splitlines()
    sections = [row for row in rows if row.startswith("\t.section\t.tbss")]
    begins = all(row.startswith("\t.section\t.tbss,") for row in sections)
    inside = False
    moved = []
    for row in rows:
        directive = DIRECTIVE.match(row)
        if directive is None:
            moved.append(row)
        elif directive["name"] != "align":
            inside = directive["value"].startswith(".tbss")
            moved.append(row)
        elif inside:
            asked = _bytes_of(int(directive["value"]))
            moved += [f"\t.balign {2 * asked}", f"\t.zero {asked}"]
            if begins:
                moved += ["\t.globl autogemm_static_begin", "autogemm_static_begin:"]
                begins = False
        else:
            moved.append(row)
    return "\n".join(moved) + "\n"


def _bytes_of(alignment: int) -> int:
    """Bytes of an `.align`: a number of bytes for x86, of bits elsewhere."""
    return alignment if platform.machine() in ("x86_64", "i686") else 1 << alignment
