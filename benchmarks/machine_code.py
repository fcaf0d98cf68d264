"""Compare the machine code of two folders of emitted kernels, file by file. Needs no GPU.

After a change of templates that must not change what kernels do:

    git worktree add OLD COMMIT
    python benchmarks/machine_code.py OLD/tests/golden tests/golden --only sgemm_simt
"""

import re
from dataclasses import dataclass
from pathlib import Path

import click

from autogemm.compile import Compiler
from autogemm.compile.disassembly import disassemble, main_loop
from autogemm.model.config import Config
from autogemm.model.kernel import MAIN_KERNEL, CompiledKernel, KernelSource
from autogemm.model.problem import Layout

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;")
SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")


@dataclass(frozen=True)
class Code:
    """The instructions of a file's kernels in order, and the use of registers of the main one."""

    instructions: tuple[str, ...]
    in_main_loop: int
    registers: int
    spilled_bytes: int


def code_of(compiled: CompiledKernel) -> Code:
    """The code of all kernels of one compiled file."""
    listing = disassemble(compiled.cubin)
    lines: list[str] = []
    for line in listing.splitlines():
        if section := SECTION.match(line):
            lines.append(section[1])
        elif found := INSTRUCTION.search(line):
            lines.append(found[1])
    loop = main_loop(listing, MAIN_KERNEL)
    (main,) = (one for one in compiled.resources if one.kernel == MAIN_KERNEL)
    return Code(
        tuple(lines), loop.instructions if loop else 0, main.registers, main.spill_store_bytes
    )


def source_of(path: Path) -> KernelSource:
    """An emitted file as the compiler takes it."""
    return KernelSource(path.stem, "", Config("", ()), Layout.NN, path.read_text())


def change(old: int, new: int) -> str:
    """Two numbers, or one where they are the same."""
    return str(old) if old == new else f"{old} -> {new}"


def row(name: str, old: Code, new: Code) -> str:
    """The line of the table for one file."""
    verdict = "same" if old.instructions == new.instructions else "differs"
    return (
        f"{name:52} {verdict:8} {change(len(old.instructions), len(new.instructions)):14} "
        f"{change(old.in_main_loop, new.in_main_loop):12} "
        f"{change(old.registers, new.registers):11} "
        f"{change(old.spilled_bytes, new.spilled_bytes)}"
    )


@click.command()
@click.argument("old_folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("new_folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--only", default="", help="Files whose names begin like this, parted by commas.")
@click.option("--arch", default="sm_90", show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(old_folder: Path, new_folder: Path, only: str, arch: str, threads: int) -> None:
    """Print a table: file, same or differs, instructions, registers."""
    beginnings = tuple(only.split(","))
    names = sorted(
        path.name for path in old_folder.glob("*.cu") if path.name.startswith(beginnings)
    )
    compiler = Compiler(threads=threads)
    print(f"{compiler.version}, {arch}")
    print(f"{'file':52} {'code':8} {'instructions':14} {'main loop':12} {'registers':11} spilled")
    num_same = 0
    for name in names:
        if not (new_folder / name).exists():
            print(f"{name:52} missing")
            continue
        old, new = (
            code_of(compiler.compile(source_of(folder / name), arch))
            for folder in (old_folder, new_folder)
        )
        num_same += old.instructions == new.instructions
        print(row(name, old, new), flush=True)
    print(f"{num_same} of {len(names)} have the same machine code")


if __name__ == "__main__":
    main()
