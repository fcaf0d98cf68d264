"""Rules that pick a kernel by M, N and K: small enough to be read, and written out as C.

Kernels are numbers, positions in a list that goes with the rule. ``ranked`` gives the kernels that
a rule would take at a size, the best first: the caller knows which of them can do it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

Size = tuple[int, int, int]
# M, N and K, and the number of products or groups where there are several.
Extents = tuple[int, ...]

# Quantities that a tree may compare, as they are written in C.
FEATURES = ("M", "N", "K", "M * N", "M * N * K")


def feature_value(feature: str, size: Size) -> int:
    """The value of one of FEATURES at a size."""
    return math.prod(size["MNK".index(name)] for name in feature.split(" * "))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A kernel."""

    kernel: int


@dataclass(frozen=True, slots=True)
class Split:
    """``below`` where the feature is at most the threshold, else ``above``."""

    feature: str
    threshold: int
    below: "Split | Leaf"
    above: "Split | Leaf"


@dataclass(frozen=True, slots=True)
class Tree:
    """Questions about the size, one after the other."""

    root: Split | Leaf

    def ranked(self, size: Size) -> tuple[int, ...]:
        """The kernel for a size, alone."""
        node = self.root
        while isinstance(node, Split):
            is_below = feature_value(node.feature, size) <= node.threshold
            node = node.below if is_below else node.above
        return (node.kernel,)

    @property
    def kernels(self) -> frozenset[int]:
        """All that it may choose."""
        return frozenset(leaf.kernel for leaf in _leaves(self.root))

    def __str__(self) -> str:
        return f"decision tree with {len(list(_leaves(self.root)))} leaves"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The kernel of the tuned size with the least Euclidean distance of log M, log N, log K, and of
    the logarithm of the number of products or groups where sizes have one.
    """

    sizes: tuple[Extents, ...]
    of_size: tuple[int, ...]

    def ranked(self, size: Extents) -> tuple[int, ...]:
        """The kernels of the tuned sizes, nearest first; of equally near ones the first."""
        distances = [
            sum(math.log2(mine / theirs) ** 2 for mine, theirs in zip(size, tuned, strict=True))
            for tuned in self.sizes
        ]
        order = sorted(range(len(distances)), key=distances.__getitem__)
        return tuple(dict.fromkeys(self.of_size[place] for place in order))

    @property
    def kernels(self) -> frozenset[int]:
        """All that it may choose."""
        return frozenset(self.of_size)

    def __str__(self) -> str:
        return f"nearest of {len(self.sizes)} tuned sizes"


@dataclass(frozen=True, slots=True)
class TimeModel:
    """A kernel's time: blocks come in waves, each as long as a block's part of K is deep.

    ``launch_us + depth * (depth_us + waves * work_us)``. A block has ``bm`` rows and ``bn`` columns
    and at least ``bk`` of K, which ``parts`` blocks share; ``per_wave`` run at a time. Kernels that
    even out their last wave have no whole waves (``is_even``). ``error`` is the root mean square
    of the relative errors that are left.
    """

    bm: int
    bn: int
    bk: int
    parts: int
    per_wave: int
    is_even: bool
    launch_us: float
    depth_us: float
    work_us: float
    error: float

    def terms(self, size: Size) -> tuple[int, float]:
        """Depth and waves."""
        m, n, k = size
        waves = -(-m // self.bm) * -(-n // self.bn) * self.parts / self.per_wave
        return max(self.bk, -(-k // self.parts)), waves if self.is_even else math.ceil(waves)

    def time_us(self, size: Size) -> float:
        """Predicted, in microseconds."""
        depth, waves = self.terms(size)
        return self.launch_us + depth * (self.depth_us + waves * self.work_us)


@dataclass(frozen=True, slots=True)
class Modelled:
    """The kernel of which the least time is predicted; ``kernels`` has one for each model."""

    models: tuple[TimeModel, ...]
    of_model: tuple[int, ...]

    def ranked(self, size: Size) -> tuple[int, ...]:
        """All kernels, the fastest first; of equal ones the first."""
        order = sorted(range(len(self.models)), key=lambda place: self.models[place].time_us(size))
        return tuple(self.of_model[place] for place in order)

    @property
    def kernels(self) -> frozenset[int]:
        """All that it may choose."""
        return frozenset(self.of_model)

    def __str__(self) -> str:
        return f"least of {len(self.models)} predicted times"


Rule = Tree | Nearest | Modelled


def _leaves(node: Split | Leaf) -> Iterator[Leaf]:
    if isinstance(node, Leaf):
        yield node
    else:
        yield from _leaves(node.below)
        yield from _leaves(node.above)
