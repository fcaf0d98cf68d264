"""Bugs to plant in kernels of gemm_wgmma that promote sums of 8-bit floats (PROMOTE): they do so
less often than they say.
"""

Edit = tuple[str, str]

NEVER = 1 << 20


def promoted_every(k_tiles: int, promote: int) -> tuple[Edit, ...]:
    """Edits with which a kernel of that PROMOTE, one row tile a warpgroup, adds its sums in FP32
    after so many k tiles.
    """
    if promote > 128:
        return (("constexpr int K_TILES = PROMOTE / BK;", f"constexpr int K_TILES = {k_tiles};"),)
    loop, partial = (
        "    for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {\n",
        "float partial[NUM_ACCUM];\n",
    )
    added, last = "accum[i][j] += partial[j];", f"k_tile % {k_tiles} == {k_tiles - 1}"
    return (
        (f"            {partial}", ""),
        (f"{loop}        const int used", f"    {partial}{loop}        const int used"),
        (", step > 0);", f", k_tile % {k_tiles} > 0 || step > 0);"),
        (added, f"if ({last} || k_tile + 1 == num_k_tiles) {added}"),
    )


def with_edits(text: str, edits: tuple[Edit, ...]) -> str:
    """The text with each edit made; all of them find their place."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text
