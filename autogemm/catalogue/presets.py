"""Lists of sizes that are tuned or benchmarked together, by name."""

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


def squares(*edges: int) -> list[Size]:
    """Problems with M = N = K."""
    return [(edge, edge, edge) for edge in edges]


PRESETS: dict[str, list[Size]] = {
    "transformer": transformer(),
    # Powers of two and the sizes half-way between them.
    "squares": squares(128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096),
    # M, N and K independently: 64, 512 and 4096 in every position, and sizes between them.
    "mixed": [
        *product((64, 512, 4096), (64, 512, 4096), (64, 512, 4096)),
        *((200, 200, 200), (1000, 1000, 1000), (1500, 700, 300), (300, 1500, 700)),
        *((700, 300, 1500), (2000, 2000, 500), (128, 8192, 1024)),
    ],
    # Squares, odd sizes, skinny and deep ones.
    "suite": [
        *squares(128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 1000, 1023, 4095),
        *((4096, 256, 1024), (16, 4096, 4096), (64, 4096, 4096), (4096, 4096, 64)),
        *((256, 256, 16384), (8192, 128, 8192), (3072, 768, 768), (32, 32, 65536)),
        (2048, 8192, 512),
    ],
    # Sizes at which the ladder's rungs are shown.
    "ladder": [*squares(128, 256, 512, 1024, 2048, 4096, 8192), (4096, 256, 1024)],
}


def preset(name: str) -> list[Size]:
    """M, N, K of each problem. Raises NotFoundError for an unknown name."""
    if name not in PRESETS:
        near = did_you_mean(name, PRESETS)
        raise NotFoundError(f"no preset {name!r}{near}; there are {', '.join(PRESETS)}")
    return PRESETS[name].copy()
