"""Draws the tutorial's pictures: what a block, a warp and a thread of each rung own and read.

    python docs/tutorial/draw.py

Each rung's mapping is written down here as its template has it, for layout nn. B is above C and
A to its left, one block tile of each. Elements that a warp loads in one instruction are marked in
A and B. Each picture is drawn twice, in the project's light and dark colours.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from autogemm.catalogue.palette import THEMES, Palette

FOLDER = Path(__file__).parents[1] / "img" / "tutorial"

Cell = tuple[int, int]
# Lane of the first warp to the elements of C that it owns.
Owner = Callable[[int], Iterable[Cell]]

# Pixels: of the side of a square tile of C, at least of a k_tile's depth, between and around.
SIDE = 300
LEAST_DEPTH = 32
GAP = 20
MARGIN = 12
LINE = 20
LEGEND = 4 * LINE + 20


@dataclass(frozen=True)
class Sketch:
    """One rung: the block's tile, the k_tile's depth, what lanes own, and what one load reads."""

    name: str
    bm: int
    bn: int
    bk: int
    owned: Owner
    read_a: frozenset[Cell]
    read_b: frozenset[Cell]
    in_shared: bool = True


def outputs(rows: int, columns: int, threads_n: int) -> Owner:
    """A thread's neighbouring outputs, threads side by side along a row of C."""

    def of(lane: int) -> list[Cell]:
        m0, n0 = lane // threads_n * rows, lane % threads_n * columns
        return [(m0 + i, n0 + j) for i in range(rows) for j in range(columns)]

    return of


def down_a_column(lane: int) -> list[Cell]:
    """naive_uncoalesced: neighbouring threads in neighbouring rows."""
    return [(lane, 0)]


def a_tile_apart(side: int, num: int) -> Owner:
    """privatized: a thread's columns are a tile apart."""
    return lambda lane: [(lane // side, lane % side + j * side) for j in range(num)]


def interleaved(lanes: tuple[int, int], thread: tuple[int, int], quads: bool) -> Owner:
    """sgemm_simt: 4x4 pieces of a thread, the pieces of the lanes side by side."""
    lanes_m, lanes_n = lanes

    def of(lane: int) -> list[Cell]:
        if quads:
            lane_m = lane // (2 * lanes_n) * 2 + lane // 2 % 2
            lane_n = lane // 4 % (lanes_n // 2) * 2 + lane % 2
        else:
            lane_m, lane_n = lane // lanes_n, lane % lanes_n
        return [
            (4 * lane_m + i // 4 * 4 * lanes_m + i % 4, 4 * lane_n + j // 4 * 4 * lanes_n + j % 4)
            for i in range(thread[0])
            for j in range(thread[1])
        ]

    return of


def row(r: int, start: int, num: int, step: int = 1) -> frozenset[Cell]:
    """Elements of one row."""
    return frozenset((r, start + step * i) for i in range(num))


def rows_of(width: int, num_rows: int) -> frozenset[Cell]:
    """Whole rows of a k_tile, from the first."""
    return frozenset((r, c) for r in range(num_rows) for c in range(width))


ONE = frozenset({(0, 0)})
SKETCHES = (
    Sketch("naive_uncoalesced", 32, 32, 32, down_a_column,
           frozenset((lane, 0) for lane in range(32)), ONE, in_shared=False),
    Sketch("naive", 32, 32, 32, outputs(1, 1, 32), ONE, row(0, 0, 32), in_shared=False),
    Sketch("coarsened", 16, 64, 32, outputs(1, 4, 16), frozenset({(0, 0), (1, 0)}),
           row(0, 0, 16, 4), in_shared=False),
    Sketch("tiled", 32, 32, 32, outputs(1, 1, 32), row(0, 0, 32), row(0, 0, 32)),
    Sketch("privatized", 16, 64, 16, a_tile_apart(16, 4), rows_of(16, 2),
           frozenset((r, c) for r in range(2) for c in range(16))),
    Sketch("register_blocked_uncoalesced", 32, 32, 32, outputs(4, 4, 8),
           frozenset((4 * r, 4 * c) for r in range(4) for c in range(8)),
           frozenset((4 * r, 4 * c) for r in range(4) for c in range(8))),
    Sketch("register_blocked", 32, 32, 32, outputs(4, 4, 8), row(0, 0, 32), row(0, 0, 32)),
    Sketch("block_tiled_1d", 64, 64, 8, outputs(8, 1, 64), rows_of(8, 4), row(0, 0, 32)),
    Sketch("block_tiled_2d", 128, 128, 8, outputs(8, 8, 16), rows_of(8, 4), row(0, 0, 32)),
    Sketch("vectorized", 128, 128, 8, outputs(8, 8, 16), rows_of(8, 16), row(0, 0, 128)),
    Sketch("warp_tiled", 128, 128, 8, interleaved((4, 8), (16, 8), quads=False), rows_of(8, 16),
           row(0, 0, 128)),
    Sketch("pipelined", 128, 256, 16, interleaved((8, 4), (8, 8), quads=True),
           frozenset((r, c) for r in range(4) for c in range(8)), row(0, 0, 128)),
)  # fmt: skip


def runs(cells: Iterable[Cell]) -> list[tuple[int, int, int, int]]:
    """The cells as few rectangles: row, column, height, width."""
    left = set(cells)
    found = []
    while left:
        top, first = min(left)
        width = 1
        while (top, first + width) in left:
            width += 1
        height = 1
        while all((top + height, first + i) in left for i in range(width)):
            height += 1
        left -= {(top + i, first + j) for i in range(height) for j in range(width)}
        found.append((top, first, height, width))
    return found


def svg(sketch: Sketch, palette: Palette) -> str:
    """The picture: elements that the first warp and thread own in C, and load from A and B."""
    scale = SIDE / math.sqrt(sketch.bm * sketch.bn)
    deep = max(sketch.bk * scale, LEAST_DEPTH) / sketch.bk
    depth, height, width = sketch.bk * deep, sketch.bm * scale, sketch.bn * scale
    left, top = MARGIN + depth + GAP, MARGIN + 12 + depth + GAP
    lanes = [list(sketch.owned(lane)) for lane in range(32)]
    assert len({cell for lane in lanes for cell in lane}) == sum(map(len, lanes)), sketch.name
    warp = [cell for lane in lanes for cell in lane]
    loaded, owned, first = palette.baseline, palette.own, palette.ink
    parts = [
        _tile("A", (MARGIN, top, depth, height), palette),
        _tile("B", (left, top - GAP - depth, width, depth), palette),
        _tile("C", (left, top, width, height), palette),
        *_cells(sketch.read_a, MARGIN, top, (deep, scale), loaded),
        *_cells(sketch.read_b, left, top - GAP - depth, (scale, deep), loaded),
        *_cells(warp, left, top, (scale, scale), owned),
        *_cells(lanes[0], left, top, (scale, scale), first),
    ]
    full_width = max(left + width + MARGIN, 300)
    full_height = top + height + LEGEND
    parts += _legend(top + height + 26, sketch, palette)
    title = f"{sketch.name}: a block's tiles, and what its first warp and thread own and read"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full_width:g} {full_height:g}" '
            f'width="{full_width:g}" height="{full_height:g}" role="img" '
            f'font-family="sans-serif" font-size="14" fill="{palette.ink}">',
            f"<title>{title}</title>",
            f'<rect width="{full_width:g}" height="{full_height:g}" fill="{palette.ground}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _tile(name: str, place: tuple[float, float, float, float], palette: Palette) -> str:
    x, y, width, height = place
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'fill="{palette.raised}" stroke="{palette.faint}"/>'
        f'<text x="{x:g}" y="{y - 4:g}">{name}</text>'
    )


def _cells(
    cells: Iterable[Cell], x: float, y: float, scale: tuple[float, float], fill: str
) -> list[str]:
    across, down = scale
    return [
        f'<rect x="{x + c * across:.2f}" y="{y + r * down:.2f}" width="{w * across:.2f}" '
        f'height="{h * down:.2f}" fill="{fill}"/>'
        for r, c, h, w in runs(cells)
    ]


def _legend(y: float, sketch: Sketch, palette: Palette) -> list[str]:
    size = f"{sketch.bm}x{sketch.bn}"
    where = f"Tile {size}x{sketch.bk} in shared memory" if sketch.in_shared else f"Block {size}"
    lines = (
        (palette.baseline, "A, B: one load of the first warp"),
        (palette.own, "C: elements of the first warp"),
        (palette.ink, "C: elements of the first thread"),
    )
    return [
        f'<rect x="{MARGIN}" y="{y + i * LINE - 11:g}" width="12" height="12" fill="{hue}"/>'
        f'<text x="{MARGIN + 18}" y="{y + i * LINE:g}">{words}</text>'
        for i, (hue, words) in enumerate(lines)
    ] + [f'<text x="{MARGIN}" y="{y + len(lines) * LINE:g}">{where}</text>']


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for sketch in SKETCHES:
        for theme, palette in THEMES.items():
            (FOLDER / f"{sketch.name}_{theme}.svg").write_text(svg(sketch, palette))


if __name__ == "__main__":
    main()
