"""Lists of sizes that are tuned or benchmarked together, by name."""

from collections.abc import Callable
from itertools import product

from autogemm.support.errors import NotFoundError
from autogemm.support.naming import did_you_mean

Size = tuple[int, int, int]


def transformer() -> list[Size]:
    """Linear layers of decoders: tokens x (queries, keys and values; output; up; down)."""
    sizes = [
        (tokens, width * columns, width * depth)
        for width, tokens, (columns, depth) in product(
            (768, 1024, 4096), (16, 128, 512, 2048), ((3, 1), (1, 1), (4, 1), (1, 4))
        )
    ]
    return list(dict.fromkeys(sizes))


def squares() -> list[Size]:
    """Powers of two and the sizes half-way between them."""
    return [(edge, edge, edge) for edge in (128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)]


def mixed() -> list[Size]:
    """M, N and K apart: each of 64, 512 and 4096 in every place, and sizes between them."""
    corners = product((64, 512, 4096), (64, 512, 4096), (64, 512, 4096))
    between = [(200, 200, 200), (1000, 1000, 1000), (1500, 700, 300), (300, 1500, 700)]
    return [*corners, *between, (700, 300, 1500), (2000, 2000, 500), (128, 8192, 1024)]


def suite() -> list[Size]:
    """Squares, odd sizes, skinny and deep ones."""
    edges = (128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 1000, 1023, 4095)
    oblong = [(4096, 256, 1024), (16, 4096, 4096), (64, 4096, 4096), (4096, 4096, 64)]
    oblong += [(256, 256, 16384), (8192, 128, 8192), (3072, 768, 768), (32, 32, 65536)]
    return [*((edge, edge, edge) for edge in edges), *oblong, (2048, 8192, 512)]


def ladder() -> list[Size]:
    """Where the ladder's rungs are shown."""
    return [(edge, edge, edge) for edge in (1024, 2048, 4096)]


PRESETS: dict[str, Callable[[], list[Size]]] = {
    "transformer": transformer,
    "squares": squares,
    "mixed": mixed,
    "suite": suite,
    "ladder": ladder,
}


def preset(name: str) -> list[Size]:
    """M, N, K of each problem. Raises NotFoundError for a name that is none."""
    if name not in PRESETS:
        near = did_you_mean(name, PRESETS)
        raise NotFoundError(f"no preset {name!r}{near}; there are {', '.join(PRESETS)}")
    return PRESETS[name]()
