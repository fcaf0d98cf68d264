"""Mutants of a module: mutmut's operators at every place where a change is more than cosmetic.

Left out are texts (raised, logged, with blanks in them), annotations, decorators, imports, and
arguments that only guard against programmers (`strict`) or only word something (`help`).
"""

import difflib
import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

COSMETIC_ARGUMENTS = frozenset(
    [
        "strict",
        "encoding",
        "errors",
        "newline",
        "stacklevel",
        "help",
        "description",
        "title",
        "label",
        "metavar",
        "doc",
    ]
)
COSMETIC_CALLS = frozenset(
    [
        "cast",
        "TypeVar",
        "getLogger",
        "debug",
        "info",
        "warning",
        "error",
        "warn",
        "echo",
        "print",
        "secho",
    ]
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug; the lines are those of the module as it stands."""

    module: str
    function: str
    first_line: int
    last_line: int
    at_import: bool
    old: str
    new: str
    source: str

    @property
    def name(self) -> tuple[str, str, str]:
        """The identity of a mutant, which stays the same while other lines of the module change."""
        return f"{self.module}:{self.function}", self.old, self.new

    def __str__(self) -> str:
        place = f"autogemm/{self.module}.py:{self.first_line} {self.function}"
        return f"{place.rstrip()}\n  - {self.old}\n  + {self.new}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A bug planted by hand in a file that is run or emitted, and the tests that should see it."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, root: Path) -> str:
        """The file with the bug. Raises ValueError where the text is not there exactly once."""
        source = (root / self.file).read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.file} has {source.count(self.old)} times {self.old!r}")
        return source.replace(self.old, self.new)


def chosen(path: Path) -> list[Chosen]:
    """The bugs of a TOML file, in its order."""
    return [
        Chosen(one["what"], one["file"], one["old"], one["new"], tuple(one["tests"]))
        for one in tomllib.loads(path.read_text())["mutant"]
    ]


@dataclass(frozen=True, slots=True)
class Site:
    """A node of a syntax tree and what takes its place."""

    module: str
    function: str
    first_line: int
    last_line: int
    at_import: bool
    tree: cst.Module
    node: cst.CSTNode
    replacement: cst.CSTNode

    def planted(self) -> Mutant | None:
        """The mutant; none where the result is no Python, or the same."""
        source = self.tree.code
        changed = self.tree.deep_replace(self.node, self.replacement)
        assert isinstance(changed, cst.Module)
        try:
            compile(changed.code, self.module, "exec")
        except SyntaxError:
            return None
        old, new = _changed_lines(source, changed.code)
        if old == new:
            return None
        place = (self.module, self.function, self.first_line, self.last_line, self.at_import)
        return Mutant(*place, old, new, changed.code)


def _changed_lines(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, each side in one line."""
    old, new = before.splitlines(), after.splitlines()
    gone: list[str] = []
    come: list[str] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            gone += [line.strip() for line in old[i:j]]
            come += [line.strip() for line in new[k:m]]
    return " ".join(gone), " ".join(come)


def sites(root: Path, module: str) -> list[Site]:
    """All places of a module, in the order of the text."""
    wrapper = MetadataWrapper(cst.parse_module((root / "autogemm" / f"{module}.py").read_text()))
    finder = _Finder(module, wrapper.module)
    wrapper.visit(finder)
    return finder.found


def sampled(places: list[Site], count: int | None, seed: int) -> Iterator[Mutant]:
    """Mutants of ``count`` places drawn at random, of all without a count."""
    drawn = list(places)
    if count is not None:
        random.Random(seed).shuffle(drawn)
    left = len(drawn) if count is None else count
    for place in drawn:
        if left <= 0:
            return
        if mutant := place.planted():
            left -= 1
            yield mutant


class _Finder(cst.CSTVisitor):  # type: ignore[misc, unused-ignore]
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, module: str, tree: cst.Module) -> None:
        super().__init__()
        self.module, self.tree = module, tree
        self.names: list[str] = []
        self.bodies: set[int] = set()
        self.bodies_open = 0
        self.found: list[Site] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _is_cosmetic(node):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self.names.append(node.name.value)
        if isinstance(node, cst.FunctionDef):
            self.bodies.add(id(node.body))
        self.bodies_open += id(node) in self.bodies
        for kind, operator in mutators.mutation_operators:
            if isinstance(node, kind):
                self._add(node, list(operator(node)))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self.bodies_open -= id(original_node) in self.bodies
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self.names.pop()

    def _add(self, node: cst.CSTNode, replacements: list[cst.CSTNode]) -> None:
        if isinstance(node, cst.SimpleString):
            replacements = replacements[:1]
        for replacement in replacements:
            if isinstance(node, cst.Call) and _drops_cosmetic_argument(node, replacement):
                continue
            try:
                span = self.get_metadata(PositionProvider, node)
            except KeyError:
                continue
            name = ".".join(self.names)
            lines = (span.start.line, span.end.line, not self.bodies_open)
            self.found.append(Site(self.module, name, *lines, self.tree, node, replacement))


def _is_cosmetic(node: cst.CSTNode) -> bool:
    match node:
        case cst.Annotation() | cst.Decorator() | cst.Raise() | cst.Import() | cst.ImportFrom():
            found = True
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
            found = True
        case cst.Call(func=cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name))):
            found = name in COSMETIC_CALLS
        case cst.Arg(keyword=cst.Name(value=name)):
            found = name in COSMETIC_ARGUMENTS
        case cst.If(test=cst.Name(value=name)):
            found = name == "TYPE_CHECKING"
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            found = name == "__all__"
        case _:
            found = _is_text(node)
    return found


def _is_text(node: cst.CSTNode) -> bool:
    """Words for a reader; a text without a blank may be a key or a name."""
    if isinstance(node, cst.SimpleString):
        return " " in node.value or node.value.startswith(('"""', "'''"))
    return isinstance(node, cst.FormattedString | cst.ConcatenatedString)


def _drops_cosmetic_argument(node: cst.Call, replacement: cst.CSTNode) -> bool:
    """The argument that is gone, or None, is a text or of no account."""
    if not isinstance(replacement, cst.Call) or replacement.func is not node.func:
        return False
    kept = {id(argument) for argument in replacement.args}
    gone = [argument for argument in node.args if id(argument) not in kept]
    return any(
        _is_text(argument.value)
        or (argument.keyword is not None and argument.keyword.value in COSMETIC_ARGUMENTS)
        for argument in gone
    )
