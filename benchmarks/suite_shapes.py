"""The shapes of each suite, and what is asked for at all of them."""

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autogemm.model.batch import ONE, Batch
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.groups import NONE, Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState
from autogemm.tuning import TuneOptions

SHAPES = (
    *("128", "256", "512", "768", "1024", "1536", "2048", "3072", "4096", "8192"),
    *("1000", "1023", "4095", "4096x256x1024", "16x4096x4096", "64x4096x4096", "4096x4096x64"),
    *("256x256x16384", "8192x128x8192", "3072x768x768", "32x32x65536", "2048x8192x512"),
)
# Where tensor cores are compared: squares, and the layers of a language model.
TENSOR_SHAPES = (
    *("1024", "2048", "4096", "8192"),
    *("8192x1024x8192", "4096x14336x4096", "64x4096x4096"),
)
# Where FP32 made of tensor-core products is compared.
EMULATED_SHAPES = ("1024", "2048", "4096", "8192")
# Sizes that 128 does not divide; at 1500, 1023 and 4095 rows are no multiples of 16 bytes.
ANY_SIZE_SHAPES = (
    *("1000", "1500", "3000", "5000", "1023", "4095"),
    *("777x3072x768", "2500x1000x3000"),
)
# (N, K) of linear layers: of Llama-3-8B (qkv, output, gate and up, down), of Llama-3-70B, of
# Qwen3-8B what is not Llama's, of DeepSeek-V3 (q_a with kv_a, q_b, kv_b, output, gate and up,
# down).
MODEL_LAYERS = (
    *("6144x4096", "4096x4096", "28672x4096", "4096x14336"),
    *("10240x8192", "8192x8192", "57344x8192", "8192x28672"),
    *("24576x4096", "4096x12288"),
    *("2112x7168", "24576x1536", "32768x512", "7168x16384", "36864x7168", "7168x18432"),
)
LAYER_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192)
LAYERS_LAW = (
    "1 to 8192 rows of 16 linear layers of Llama-3-8B and -70B, Qwen3-8B and DeepSeek-V3, in "
    "shuffled order, so that a part of them is no special one"
)
# Small squares, many in a launch.
BATCHED_SHAPES = (
    *("64 batch=256", "64 batch=4096", "96 batch=1000", "128 batch=64", "128 batch=512"),
    *("128 batch=4096", "200 batch=300", "256 batch=32", "256 batch=1024", "512 batch=32"),
    *("512 batch=256",),
)
# Experts of Qwen3-30B-A3B, Mixtral 8x7B and DeepSeek-V3 (64 of them, and all), up and down; M is
# all tokens together.
GROUPED_SHAPES = (
    "512x1536x2048 groups=128 zipf=1.1 seed=1",
    "4096x1536x2048 groups=128 zipf=1.1 seed=1",
    "4096x2048x768 groups=128 uniform",
    "65536x1536x2048 groups=128 uniform",
    "65536x2048x768 groups=128 zipf=1.1 seed=1",
    "2048x28672x4096 groups=8 uniform",
    "8192x4096x14336 groups=8 zipf=1.1 seed=1",
    "8192x4096x7168 groups=64 zipf=1.1 seed=1",
    "65536x7168x2048 groups=64 uniform",
    "65536x7168x2048 groups=256 uniform",
    "32768x4096x7168 groups=256 zipf=1.1 seed=1",
)
# Gradients of their weights, layout tn: K is the rows of all tokens together, of which
# each has several. First fewer rows for each group than a k tile is deep.
GROUPED_K_SHAPES = (
    "2048x1536x4096 groups=128 uniform",
    "2048x1536x32768 groups=128 zipf=1.1 seed=1",
    "2048x1536x65536 groups=128 uniform",
    "768x2048x65536 groups=128 zipf=1.1 seed=1",
    "4096x14336x8192 groups=8 uniform",
    "14336x4096x16384 groups=8 zipf=1.1 seed=1",
    "7168x4096x16384 groups=32 zipf=1.1 seed=1",
    "2048x7168x65536 groups=32 uniform",
)
# Tokens that decode, each over the same 8 of 128 experts; M is the rows of all, 8 a token. Experts
# of Qwen3-30B-A3B and of DeepSeek-V3's width, up and down.
MOE_DECODE_SHAPES = tuple(
    f"{8 * tokens}x{expert} groups=128 uniform used=8"
    for expert in ("1536x2048", "2048x768", "4096x7168", "7168x2048")
    for tokens in (1, 8, 64)
)
# The public record of 1000 shapes has M, N and K each of these.
CUBE_SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384)
CUBE_LAW = (
    "100 of the 1000 shapes of M, N and K from 64 to 16384: every pair of sizes of two dimensions "
    "occurs once; in shuffled order, so that a part of them is no special one"
)
# Linear layers with an epilogue: squares; Llama-3-8B's up, down and output; BERT-base's, whose
# models have biases.
EPILOGUE_SHAPES = (
    *("1024", "2048", "4096", "8192"),
    *("128x14336x4096", "512x14336x4096", "2048x14336x4096", "8192x14336x4096"),
    *("2048x4096x14336", "2048x4096x4096", "8192x768x768", "8192x3072x768"),
)
LAYER_EPILOGUES = {
    "bias": "acc + bias[n]",
    "bias-relu": "relu(acc + bias[n])",
    "bias-gelu": "gelu_tanh(acc + bias[n])",
    "residual": "acc + rest[m, n]",
    "swiglu": "silu(acc[n]) * acc[n + N]",
}
# As DeepGEMM has scales of blocks; and its list of (N, K), layers of DeepSeek-V3
# (deepseek-ai/DeepGEMM, tests/generators.py), with prompts and batches of M rows.
SCALED = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
SCALED_LAYERS = (
    *("2112x7168", "576x7168", "24576x1536", "32768x512", "7168x16384", "4096x7168", "7168x2048"),
)
# A few of them, which a short loan of a GPU has time for; all; and rows of a token each.
SCALED_SHAPES = (
    *("64x7168x2048", "128x2112x7168", "128x24576x1536", "512x4096x7168", "4096x2112x7168"),
    *("4096x24576x1536", "4096x7168x2048", "8192x4096x7168"),
)
ALL_SCALED = tuple(
    f"{m}x{layer}" for layer in SCALED_LAYERS for m in (64, 128, 512, 1024, 2048, 4096, 8192)
)
SCALED_DECODE = tuple(
    f"{m}x{layer}"
    for layer in ("7168x16384", "24576x1536", "7168x2048", "2112x7168")
    for m in (1, 8, 16)
)
# Experts of Qwen3-30B-A3B and DeepSeek-V3 (32 of them, and all), up and down, whose B has scales of
# its own for each; the last ones are masked, as for tokens that other GPUs sent.
SCALED_GROUPS = "acc * sa[k / 128, m] * sb[g, n / 128, k / 128]"
GROUPED_SCALED_SHAPES = (
    "4096x1536x2048 groups=128 zipf=1.1 seed=1",
    "65536x2048x768 groups=128 uniform",
    "8192x4096x7168 groups=32 zipf=1.1 seed=1",
    "8192x7168x2048 groups=32 zipf=1.1 seed=1",
    "65536x4096x7168 groups=32 uniform",
    "65536x7168x2048 groups=256 uniform",
    "32768x4096x7168 groups=32 uniform masked=4096",
    "32768x7168x2048 groups=32 zipf=1.1 seed=1 masked=8192",
)
# Up to so many rows a table shows the share of a memory copy; up to so many bytes, that of a copy
# of as few, too.
MOST_FEW_ROWS = 64
MOST_FEW_BYTES = 128 << 20


def cube_shapes(seed: int = 1) -> tuple[str, ...]:
    """Return 100 shapes of the cube by a Latin square, in the order of a seed."""
    drawn = [
        Problem(m, n, CUBE_SIZES[(3 * i + 7 * j) % len(CUBE_SIZES)]).size_label
        for i, m in enumerate(CUBE_SIZES)
        for j, n in enumerate(CUBE_SIZES)
    ]
    random.Random(seed).shuffle(drawn)
    return tuple(drawn)


def layer_shapes(seed: int = 1) -> tuple[str, ...]:
    """Return all rows of all layers in the order of a seed."""
    shapes = [f"{m}x{layer}" for layer in MODEL_LAYERS for m in LAYER_ROWS]
    random.Random(seed).shuffle(shapes)
    return tuple(shapes)


# Shapes and the name of the files, in which KIND is the element type.
NAMED: dict[str, tuple[str, Sequence[str]]] = {
    "layers": ("layers_KIND", layer_shapes()),
    "cube": ("cube_KIND_LAYOUT", cube_shapes()),
    "any-size": ("any_size_KIND_LAYOUT", ANY_SIZE_SHAPES),
    "layouts": ("KIND_layouts_LAYOUT", ("1024", "2048", "4096", "8192")),
    "batched": ("batched_KIND_LAYOUT", BATCHED_SHAPES),
    "grouped": ("grouped_KIND_LAYOUT", GROUPED_SHAPES),
    "grouped-k": ("grouped_k_KIND_LAYOUT", GROUPED_K_SHAPES),
    "moe-decode": ("moe_decode_KIND_LAYOUT", MOE_DECODE_SHAPES),
    "decode": ("decode_KIND_LAYOUT", SCALED_DECODE),
    **{
        name: (f"epilogue_{name.replace('-', '_')}_KIND_LAYOUT", EPILOGUE_SHAPES)
        for name in LAYER_EPILOGUES
    },
    "block-scales": ("block_scales_KIND_LAYOUT", SCALED_SHAPES),
    "block-scales-all": ("block_scales_all_KIND_LAYOUT", ALL_SCALED),
    # For one row cuBLASLt has no call with such scales: the baseline would be converted operands.
    "block-scales-decode": (
        "block_scales_decode_KIND_LAYOUT",
        tuple(shape for shape in SCALED_DECODE if not shape.startswith("1x")),
    ),
    "grouped-block-scales": ("grouped_block_scales_KIND_LAYOUT", GROUPED_SCALED_SHAPES),
}
# How the shapes of a name were chosen.
LAWS = {"cube": CUBE_LAW, "layers": LAYERS_LAW}
# The epilogue that belongs to a name.
EPILOGUES = {
    **LAYER_EPILOGUES,
    **dict.fromkeys(("block-scales", "block-scales-all", "block-scales-decode"), SCALED),
    "grouped-block-scales": SCALED_GROUPS,
}
# Sizes of unseen shapes; a product of more multiply-adds than 8192 x 8192 x 4096 is drawn again.
UNSEEN_SIZES = (32, 8192)
MOST_UNSEEN = 8192 * 8192 * 4096
LAW = (
    f"M, N and K each log-uniform from {UNSEEN_SIZES[0]} to {UNSEEN_SIZES[1]}; of three sizes one "
    "is a multiple of 64, one of 8 and one any number, odd ones too; shapes of the suite and "
    "products of more than 8192 x 8192 x 4096 multiply-adds are drawn again"
)


def problem_of(
    shape: str, layout: Layout = Layout.NN, dtype: DType = DType.F32, epilogue: Epilogue = PLAIN
) -> Problem:
    """Return the problem of a shape: ``4096``, ``128 batch=512`` or ``4096 groups=8 uniform``.

    Raises UsageError for any other text.
    """
    size, _, more = shape.partition(" ")
    name, _, text = more.partition("=")
    batch = Batch.parse(text) if name == "batch" else ONE
    groups = Groups.parse(text) if name == "groups" else NONE
    m, n, k = Problem.parse_size(size)
    return Problem(m, n, k, layout, dtype, epilogue=epilogue, batch=batch, groups=groups)


def shape_of(problem: Problem) -> str:
    """Return the text from which `problem_of` makes the problem, but for layout, type, epilogue."""
    return problem.products_label


def rows_of_each(problem: Problem) -> int:
    """Return the rows of a product; of groups as many as those with rows have in the mean."""
    if problem.groups.is_none or problem.divides_k:
        return problem.m
    return math.ceil(problem.used_rows / problem.groups.num_used(problem.m))


def unseen_shapes(count: int, seed: int) -> tuple[str, ...]:
    """Draw shapes by `LAW`: the same ones for a seed, on every machine."""
    rng = random.Random(seed)
    drawn: list[str] = []
    while len(drawn) < count:
        m, n, k = _size(rng), _size(rng), _size(rng)
        label = Problem(m, n, k).size_label
        if m * n * k <= MOST_UNSEEN and label not in (*SHAPES, *TENSOR_SHAPES, *drawn):
            drawn.append(label)
    return tuple(drawn)


def _size(rng: random.Random) -> int:
    low, high = UNSEEN_SIZES
    size = round(low * math.pow(high / low, rng.random()))
    step = (1, 8, 64)[int(3 * rng.random())]
    return max(step, size // step * step)


@dataclass(frozen=True)
class Suite:
    """The shapes to measure: of one element type, in each layout, with the same options.

    ``name`` is that of the files, without layout and GPU.
    """

    name: str
    problems: tuple[Problem, ...]
    options: TuneOptions
    law: str = ""

    @property
    def of_few_rows(self) -> list[Problem]:
        """Those where the memory's speed is what counts: few rows of each problem, or group, that
        find nothing in L2.
        """
        if self.options.l2 is CacheState.WARM:
            return []
        return [one for one in self.problems if rows_of_each(one) <= MOST_FEW_ROWS]

    @property
    def settings(self) -> dict[str, Any]:
        """The values that must be the same for rows to stand in one table."""
        named = ("trials", "budget_s", "finalists", "rounds", "max_error", "l2", "seeds", "seed")
        return {name: getattr(self.options, name) for name in named}

    def of(self, layout: Layout) -> list[Problem]:
        """The problems of one layout, in order."""
        return [problem for problem in self.problems if problem.layout is layout]

    def file_name(self, layout: Layout, gpu: str) -> str:
        """The name of a layout's table: suite_f32_nn_h200."""
        return f"{self.name.replace('LAYOUT', layout.value)}_{gpu}"


def suite_of(options: Mapping[str, Any]) -> Suite:
    """Return the suite that is asked for. Raises UsageError for what is no size or dtype."""
    dtype, emulation = DType.parse(options["dtype"]), options["emulation"]
    own = options["shapes"].split(",") if options["shapes"] else None
    shapes: Sequence[str] = own or _shapes(dtype, emulation)
    kind = "emulated" if emulation else dtype.label
    name, law = f"suite_{kind}_LAYOUT", ""
    layouts = [Layout(one) for one in options["layouts"].split(",")]
    if options["suite"]:
        name, shapes = NAMED[options["suite"]]
        name, shapes = name.replace("KIND", kind), own or shapes
        law = LAWS.get(options["suite"], "")
    if options["unseen"]:
        shapes = unseen_shapes(options["unseen"], options["seed"])
        law = f"{options['unseen']} shapes of seed {options['seed']}: {LAW}"
        name = "unseen" if kind == "f32" else f"unseen_{kind}"
        # The first layout goes without saying.
        name += "" if layouts == [Layout.NN] else "_LAYOUT"
    if options["without_seeds"]:
        name += "_without_seeds"
    if options["l2"] != CacheState.WARM:
        name += f"_{options['l2']}"
    if options["sustained"]:
        name += "_sustained"
    own_epilogue = EPILOGUES.get(options["suite"])
    epilogue = Epilogue.parse(own_epilogue or options["epilogue"])
    if not epilogue.is_plain and own_epilogue is None:
        # Words of the expression: suite_bf16_relu_acc_bias_n_nt.
        words = "_".join(re.findall(r"[a-z0-9]+", epilogue.text.lower()))
        name = f"{name.removesuffix('_LAYOUT')}_{words}_LAYOUT"
    asked = TuneOptions(
        gpu=options["gpu"],
        require_gpu=True,
        family=options["family"],
        allow_emulation=emulation,
        trials=options["trials"],
        budget_s=options["budget"],
        max_error="cublas" if emulation and not options["max_error"] else options["max_error"],
        finalists=options["finalists"],
        rounds=options["rounds"],
        l2=CacheState(options["l2"]),
        # Each shape for itself: what was measured does not depend on what was measured before.
        warm_start=False,
        sustained_s=options["sustained"],
        seeds=not options["without_seeds"],
        certify=False,
        fresh=True,
    )
    problems = tuple(
        problem_of(shape, layout, dtype, epilogue) for layout in layouts for shape in shapes
    )
    return Suite(name, problems, asked, law)


def _shapes(dtype: DType, emulation: bool) -> tuple[str, ...]:
    if emulation:
        return EMULATED_SHAPES
    return SHAPES if dtype is DType.F32 else TENSOR_SHAPES
