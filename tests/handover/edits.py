"""Hand-written kernels whose threads hand over data, edits that leave them right, and slips."""

from dataclasses import dataclass

from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.support.templating import environment


@dataclass(frozen=True)
class Edit:
    """``old`` becomes ``new`` everywhere, then ``also``; ``says`` is part of a finding's text."""

    old: str
    new: str
    says: str = ""
    also: tuple[tuple[str, str], ...] = ()


def wrappers(parts: tuple[str, ...]) -> str:
    """Template text that calls those macros of templates/parts/ptx."""
    in_cluster = "true" if "cluster" in parts else "false"
    scope = "cluster" if "cluster" in parts else "cta"
    arguments = {
        "mbarrier": f'in_cluster={in_cluster}, wait_scope="{scope}"',
        "bulk_copy": f"in_cluster={in_cluster}",
        "tensor_map_copy": f"in_cluster={in_cluster}, stores=true",
    }
    return "".join(
        f'{{% from "parts/ptx/{part}.cu.jinja" import {part} %}}\n'
        f"{{{{ {part}({arguments.get(part, '')}) }}}}\n"
        for part in parts
    )


@dataclass(frozen=True)
class Kernel:
    """One kernel with what it is run on. ``right`` and ``wrong`` are edits by name.

    ``parts`` are the wrappers of instructions that it calls, of which the emulator has twins.
    """

    text: str
    problem: Problem
    plan: LaunchPlan
    right: dict[str, Edit]
    wrong: dict[str, Edit]
    parts: tuple[str, ...] = ()

    def edited(self, name: str = "") -> KernelSource:
        """The kernel with one of its edits, or as it is."""
        text = self.text
        if name:
            edit = (self.right | self.wrong)[name]
            for old, new in ((edit.old, edit.new), *edit.also):
                assert old in text, f"{name}: the kernel no longer has {old!r}"
                text = text.replace(old, new)
        return KernelSource("hand-written", "", Config("", ()), self.problem.layout, text)

    def for_a_gpu(self, name: str = "") -> KernelSource:
        """The same with the functions that it calls in front of it."""
        edited = self.edited(name)
        text = environment().from_string(wrappers(self.parts)).render() + edited.text
        return KernelSource(edited.family, "", edited.config, edited.layout, text)
