"""Contents of a cubin: the size of its code, and the instructions of a kernel's main loop.

Sizes are read from the ELF file itself. Instructions need NVIDIA's nvdisasm, which needs no GPU.
"""

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from autogemm.support.errors import AutogemmError, CompilerMissingError

_PACKAGE = "nvidia-cuda-nvdisasm"
HOW_TO_INSTALL = f'pip install "{_PACKAGE}>=13.2"'

_TEXT_SECTION = ".text."
_SECTION = re.compile(r"^\s*\.section\s+([^,\s]+)")
_LABEL = re.compile(r"^\s*(\.L\w+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;")
_PREDICATE = re.compile(r"^@(!?\w+)\s+")
_TARGET = re.compile(r"\bBRA\b.*`\((\.L\w+)\)")

# Mnemonics up to their first dot; a leading U (the uniform datapath) is dropped first.
_KINDS = {
    "ffma": ("FFMA", "FFMA2"),
    # Of mma.sync and of wgmma: 16 bits and TF32, 8-bit floats, integers.
    "tensor": ("HMMA", "HGMMA", "QMMA", "QGMMA", "IMMA", "IGMMA"),
    "shared_loads": ("LDS", "LDSM"),
    "global_loads": ("LDG", "LDGSTS", "UTMALDG", "UBLKCP"),
    "shared_stores": ("STS", "STSM"),
    "local": ("LDL", "STL"),
    "integer": (
        *("IADD", "IADD3", "IMAD", "IMUL", "IABS", "IMNMX", "VIMNMX", "VIADD", "LEA", "LOP3"),
        *("SHF", "SHL", "SHR", "ISETP", "SEL", "PRMT", "SGXT", "BMSK", "PLOP3", "P2R", "R2P"),
        *("MOV", "CS2R", "S2R", "S2UR", "R2UR", "LDC"),
    ),
    "control": (
        *("BRA", "BRX", "BAR", "BSSY", "BSYNC", "BREAK", "BMOV", "CALL", "RET", "EXIT", "NOP"),
        *("WARPSYNC", "DEPBAR", "LDGDEPBAR", "YIELD", "WARPGROUP", "SYNCS", "FENCE", "MEMBAR"),
    ),
}
_KIND_OF = {mnemonic: kind for kind, mnemonics in _KINDS.items() for mnemonic in mnemonics}


@dataclass(frozen=True, slots=True)
class InstructionMix:
    """Instructions of one turn of a kernel's main loop, for one warp, by kind.

    ``tensor`` are products on tensor cores (mma.sync, wgmma); ``local`` are loads and stores of
    spilled registers. ``integer`` are integer arithmetic, addresses, comparisons and moves, also on
    the uniform datapath; ``control`` branches, barriers and waits. Every path through the loop is
    counted, also one that is seldom taken. ``instructions_per_ffma`` is None without an FFMA.
    """

    instructions: int
    ffma: int
    tensor: int
    shared_loads: int
    global_loads: int
    shared_stores: int
    local: int
    integer: int
    control: int
    other: int
    instructions_per_ffma: float | None


def find_nvdisasm() -> Path | None:
    """nvdisasm from its Python package, on PATH, or in a CUDA toolkit; None if there is none."""
    found = (_in_package(), shutil.which("nvdisasm"), *_in_toolkits())
    return next((Path(path) for path in found if path and Path(path).is_file()), None)


def disassemble(cubin: bytes) -> str:
    """The text that nvdisasm prints of a cubin's code.

    Raises CompilerMissingError when nvdisasm is not installed, AutogemmError when it does not
    understand the cubin (it is older than the architecture).
    """
    tool = find_nvdisasm()
    if tool is None:
        raise CompilerMissingError(f"nvdisasm is not installed: {HOW_TO_INSTALL}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            answer = subprocess.run(
                [str(tool), "-c", str(path)], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise AutogemmError(f"{tool} cannot be run: {error.strerror}") from error
    if answer.returncode != 0:
        reason = " ".join(answer.stderr.split()) or f"exit code {answer.returncode}"
        raise AutogemmError(f"{tool} does not understand this cubin ({reason}): {HOW_TO_INSTALL}")
    return answer.stdout


def main_loop(listing: str, kernel: str) -> InstructionMix | None:
    """The mix of the loop that multiplies, from what `disassemble` gave; None if there is none.

    A loop is what lies between a branch backwards and its target. The main loop is the one with
    the most products, of tensor cores where any are used and FFMA elsewhere; of nested ones the
    inner one, if it has at least half of them. A branch that begins behind a loop and leads into it
    makes none: it comes back from code that the compiler moved out of the loop.
    """
    instructions, loops = _loops(listing, kernel)
    whole = [
        loop
        for loop in loops
        if not any(other.start < loop.start < other.stop < loop.stop for other in loops)
    ]
    mixes = [(loop, _mix(instructions[loop.start : loop.stop])) for loop in whole]
    # Beside tensor cores FFMA scale sums that are stored, a loop around the one that multiplies.
    by_tensor_cores = any(mix.tensor for _, mix in mixes)

    def products(mix: InstructionMix) -> int:
        return mix.tensor if by_tensor_cores else mix.ffma

    def is_around(loop: range, other: range) -> bool:
        return other != loop and loop.start <= other.start and other.stop <= loop.stop

    inner_most = [
        mix
        for loop, mix in mixes
        if not any(is_around(loop, x) and 2 * products(y) >= products(mix) for x, y in mixes)
    ]
    best = max(inner_most, key=lambda mix: (products(mix), -mix.instructions), default=None)
    return best if best is not None and products(best) else None


def code_sizes(cubin: bytes) -> dict[str, int]:
    """Bytes of machine code by kernel: the sections ``.text.NAME`` of the 64-bit ELF file."""
    (table_offset,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = []
    for index in range(count):
        at = table_offset + index * entry_bytes
        (name,) = struct.unpack_from("<I", cubin, at)
        sections.append((name, *struct.unpack_from("<QQ", cubin, at + 0x18)))
    _, names_offset, names_bytes = sections[names_index]
    names = cubin[names_offset : names_offset + names_bytes]
    sizes = {
        names[name : names.index(b"\0", name)].decode(): size_bytes
        for name, _, size_bytes in sections
    }
    return {
        name.removeprefix(_TEXT_SECTION): size_bytes
        for name, size_bytes in sizes.items()
        if name.startswith(_TEXT_SECTION)
    }


def _in_package() -> Path | None:
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.stem == "nvdisasm"), None)


def _in_toolkits() -> tuple[Path, ...]:
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    return tuple(Path(home) / "bin" / "nvdisasm" for home in homes if home)


def _loops(listing: str, kernel: str) -> tuple[list[str], list[range]]:
    """A kernel's instructions, and the stretches of them that branches backwards repeat."""
    inside = False
    instructions: list[str] = []
    labels: dict[str, int] = {}
    loops = []
    for line in listing.splitlines():
        if section := _SECTION.match(line):
            inside = section[1] == _TEXT_SECTION + kernel
        elif not inside:
            continue
        elif label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif found := _INSTRUCTION.search(line):
            instructions.append(found[1])
            target = _TARGET.search(found[1])
            # A label that is known already lies before the branch.
            if target and target[1] in labels:
                loops.append(range(labels[target[1]], len(instructions)))
    return instructions, loops


def _mix(instructions: Iterable[str]) -> InstructionMix:
    counts = dict.fromkeys((*_KINDS, "other"), 0)
    for instruction in instructions:
        counts[_kind(instruction)] += 1
    total = sum(counts.values())
    return InstructionMix(
        instructions=total,
        **counts,
        instructions_per_ffma=total / counts["ffma"] if counts["ffma"] else None,
    )


def _kind(instruction: str) -> str:
    predicate = _PREDICATE.match(instruction)
    if predicate and predicate[1] == "!PT":
        # Never executed: ptxas puts three of these before copies to shared memory.
        return "other"
    text = instruction[predicate.end() :] if predicate else instruction
    mnemonic = re.split(r"[.\s]", text, maxsplit=1)[0]
    return _KIND_OF.get(mnemonic) or _KIND_OF.get(mnemonic.removeprefix("U"), "other")
