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


@dataclass(frozen=True)
class Kernel:
    """One kernel with what it is run on. ``right`` and ``wrong`` are edits by name.

    ``parts`` are the templates whose functions it calls, which the emulator brings by itself.
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

    def for_a_card(self, name: str = "") -> KernelSource:
        """The same with the functions that it calls in front of it."""
        in_cluster = "cluster" in self.parts
        parts = [
            environment()
            .get_template(f"parts/{part}.cu.jinja")
            .render(in_cluster=in_cluster, stores=True)
            for part in self.parts
        ]
        edited = self.edited(name)
        text = "".join(parts) + edited.text
        return KernelSource(edited.family, "", edited.config, edited.layout, text)
