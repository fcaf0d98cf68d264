"""Rules that pick a kernel by M, N and K: small enough to be read, and written out as C.

Kernels are numbers, positions in a list that goes with the rule.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

Size = tuple[int, int, int]

# What a tree may ask for, as it is written in C.
FEATURES = ("M", "N", "K", "M * N", "M * N * K")


def feature_value(feature: str, size: Size) -> int:
    """Of one of FEATURES at a size."""
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

    def choose(self, size: Size) -> int:
        """The kernel for a size."""
        node = self.root
        while isinstance(node, Split):
            is_below = feature_value(node.feature, size) <= node.threshold
            node = node.below if is_below else node.above
        return node.kernel

    @property
    def kernels(self) -> frozenset[int]:
        """All that it may choose."""
        return frozenset(leaf.kernel for leaf in _leaves(self.root))

    def __str__(self) -> str:
        return f"decision tree with {len(list(_leaves(self.root)))} leaves"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The kernel of the tuned size with the least Euclidean distance of log M, log N, log K."""

    sizes: tuple[Size, ...]
    of_size: tuple[int, ...]

    def choose(self, size: Size) -> int:
        """The kernel for a size; of equally near ones the first."""
        distances = [
            sum(math.log2(mine / theirs) ** 2 for mine, theirs in zip(size, tuned, strict=True))
            for tuned in self.sizes
        ]
        return self.of_size[distances.index(min(distances))]

    @property
    def kernels(self) -> frozenset[int]:
        """All that it may choose."""
        return frozenset(self.of_size)

    def __str__(self) -> str:
        return f"nearest of {len(self.sizes)} tuned sizes"


Rule = Tree | Nearest


def _leaves(node: Split | Leaf) -> Iterator[Leaf]:
    if isinstance(node, Leaf):
        yield node
    else:
        yield from _leaves(node.below)
        yield from _leaves(node.above)
