"""A Jinja environment for the templates of others: what they render ends, and has a size.

A clock would judge the machine, and a signal reaches the main thread alone. The counts are the same
on every machine: rounds of loops, calls of macros, templates that are included, and characters.
"""

import threading
from typing import Any

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

# A kernel takes some hundreds of rounds; so many take a second.
MAX_ROUNDS = 50_000
# The largest source that is stored has 2 MB; macros in macros count again.
MAX_CHARS = 16 * 2**20
MAX_DIGITS = 100


class TooMuchError(ValueError):
    """A template does not end in time, or prints too much."""


class _Work(threading.local):
    """The work of one rendering: each thread has its own."""

    rounds = 0
    chars = 0


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Raises TooMuchError for a template that takes too long or makes too large a value."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, *given: Any, **options: Any) -> None:
        self._work = _Work()
        super().__init__(*given, **options)

    def begin(self) -> None:
        """Count from nothing again: a rendering begins in this thread."""
        self._work.rounds = self._work.chars = 0

    def count(self, chars: int) -> str:
        """Count one round that has so many characters of plain text, and print nothing."""
        work = self._work
        work.rounds += 1
        if work.rounds > MAX_ROUNDS:
            raise TooMuchError(f"it takes more than {MAX_ROUNDS} rounds of its loops and macros")
        self.count_chars(chars)
        return ""

    def count_chars(self, chars: int) -> None:
        """Count characters that are printed or put together."""
        self._work.chars += chars
        if self._work.chars > MAX_CHARS:
            raise TooMuchError(f"it makes more than {MAX_CHARS // 2**20} million characters")

    def joined(self, *parts: Any) -> str:
        """Return what ``~`` gives."""
        text = "".join(map(str, parts))
        self.count_chars(len(text))
        return text

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Return a product or power, unless it is larger than a template needs."""
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" and numbers and abs(right) * len(str(abs(left))) > MAX_DIGITS:
            raise TooMuchError(f"{left} ** {right} has more than {MAX_DIGITS} digits")
        if operator == "*" and not numbers:
            sequence, times = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(times, int) and hasattr(sequence, "__len__"):
                self.count_chars(len(sequence) * max(0, times))
        return super().call_binop(context, operator, left, right)

    def _generate(self, source: nodes.Template, *given: Any, **options: Any) -> str:
        """Add the counting to a parsed template: Jinja's hook for a compiler of one's own."""
        for node in list(source.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
            assert isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock)
            node.body.insert(0, _counting(node.body))
        source.body.insert(0, _counting(source.body))
        for part in source.body:
            _with_joined(part)
        source.set_environment(self)
        return super()._generate(source, *given, **options)


def _counting(body: list[nodes.Node]) -> nodes.Node:
    """A statement that counts one round of a body; where it stands is as good as its first line."""
    found = (part for node in body for part in (node, *node.find_all(nodes.TemplateData)))
    chars = sum(len(part.data) for part in found if isinstance(part, nodes.TemplateData))
    line = body[0].lineno if body else 1
    call = nodes.Call(
        nodes.EnvironmentAttribute("count"), [nodes.Const(chars)], [], None, None, lineno=line
    )
    return nodes.ExprStmt(call, lineno=line)


def _with_joined(node: nodes.Node) -> None:
    """Make each ``~`` below a node a call that counts."""
    for name, value in list(node.iter_fields()):
        if isinstance(value, list):
            value[:] = [_joined(part) for part in value]
        elif isinstance(value, nodes.Node):
            setattr(node, name, _joined(value))
    for child in node.iter_child_nodes():
        _with_joined(child)


def _joined(node: Any) -> Any:
    if not isinstance(node, nodes.Concat):
        return node
    return nodes.Call(
        nodes.EnvironmentAttribute("joined"), node.nodes, [], None, None, lineno=node.lineno
    )
