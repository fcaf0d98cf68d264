"""Sizes and kernels that belong together, under a name."""

from dataclasses import dataclass

from autogemm.ladder import libraries, rungs

WINNER = "winner"
"""The best kernel that the database has for the size on this card."""

DEFAULT_KERNELS = ("naive", "pipelined", WINNER, "cublas_f32")


@dataclass(frozen=True, slots=True)
class Preset:
    """``sizes`` as `parse_sizes` takes them, names of kernels, and what it is good for."""

    sizes: str
    kernels: tuple[str, ...]
    summary: str


PRESETS = {
    "ladder": Preset(
        "1024,2048,4096",
        (*(rung.name for rung in rungs()), WINNER, *(one.name for one in libraries())),
        "every rung from naive to the winner, and the libraries",
    ),
    "squares": Preset("128:8192:*2", DEFAULT_KERNELS, "square matrices"),
    "transformer": Preset(
        # Tokens x outputs x inputs: attention and feed-forward of models 768, 1024 and 4096 wide.
        "512x768x768,512x3072x768,512x768x3072,4096x256x1024,2048x4096x1024,2048x1024x4096,"
        "2048x4096x4096,2048x11008x4096,2048x4096x11008,16x4096x4096",
        DEFAULT_KERNELS,
        "layers of transformers",
    ),
    "suite": Preset(
        "128,256,512,768,1024,1536,2048,3072,4096,8192,1000,1023,4095,4096x256x1024,"
        "16x4096x4096,64x4096x4096,4096x4096x64,256x256x16384,8192x128x8192,3072x768x768,"
        "32x32x65536,2048x8192x512",
        DEFAULT_KERNELS,
        "squares, odd sizes, skinny and deep ones",
    ),
}
