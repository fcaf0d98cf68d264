"""Return addresses to lines of the emitted source, by binutils' addr2line."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

Lines = tuple[int, ...]


def source_lines(executable: Path, source: Path, pcs: Iterable[int]) -> dict[int, Lines]:
    """For each return address the lines in ``source``, innermost inlined call first.

    An address that lies in none of the source's lines, or a machine without addr2line, gives ().
    """
    wanted = sorted({pc for pc in pcs if pc})
    addr2line = shutil.which("addr2line")
    if not wanted or addr2line is None:
        return dict.fromkeys(wanted, ())
    # The call is before its return address.
    addresses = [hex(pc - 1) for pc in wanted]
    answer = subprocess.run(
        [addr2line, "-a", "-i", "-e", str(executable), *addresses],
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[int, Lines] = {}
    address = 0
    for row in answer.stdout.splitlines():
        if row.startswith("0x"):
            address = int(row, 16) + 1
            found[address] = ()
            continue
        match = re.match(r"(.*):(\d+)(?: \(.*)?$", row)
        if match and Path(match.group(1)).name == source.name:
            found[address] += (int(match.group(2)),)
    return {pc: found.get(pc, ()) for pc in wanted}
