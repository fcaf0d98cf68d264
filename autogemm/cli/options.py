"""Options that several commands share, and what becomes of them."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.model.hardware.device import Device

Command = Callable[..., Any]

# What `--gpu auto` means to commands that only need a card's facts, where none is attached.
FALLBACK_GPU = "h100"


def problem_options(command: Command) -> Command:
    """Adds ``--size --layout --dtype --lda --ldb --ldc --alpha --beta``, for `problem_from`."""
    size = click.option(
        "--size", default="4096", show_default=True, help="M=N=K as one number, or MxNxK."
    )
    return size(_matrix_options(command))


def problems_options(command: Command) -> Command:
    """As `problem_options`, of one problem or many: ``--size`` several times (``sizes``),
    ``--preset``, ``--problems``; for `autogemm.cli.tune.problems.problems_from`.
    """
    options = (
        click.option(
            "--size",
            "sizes",
            multiple=True,
            help="M=N=K as one number, or MxNxK; repeatable.  [default: 4096]",
        ),
        click.option(
            "--preset", metavar="NAME", help="Many: transformer, squares, mixed, suite or ladder."
        ),
        click.option(
            "--problems",
            "problems_file",
            metavar="FILE",
            help="Many: a line each, a size and, if it differs, a layout: 4096x256x1024 nt.",
        ),
    )
    command = _matrix_options(command)
    for option in reversed(options):
        command = option(command)
    return command


def _matrix_options(command: Command) -> Command:
    options = (
        click.option(
            "--layout",
            type=click.Choice([layout.value for layout in Layout], case_sensitive=False),
            default=Layout.NN.value,
            show_default=True,
            help="op(A) then op(B): n as stored, t transposed; all row-major.",
        ),
        dtype_option(default=DType.F32.label),
        click.option("--lda", default=0, help="Leading dimension of A; 0 is packed."),
        click.option("--ldb", default=0, help="Leading dimension of B; 0 is packed."),
        click.option("--ldc", default=0, help="Leading dimension of C; 0 is packed."),
        click.option("--alpha", default=1.0, show_default=True, help="Factor of op(A) op(B)."),
        click.option("--beta", default=0.0, show_default=True, help="Factor of the old C."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def dtype_option(default: str | None = None) -> Command:
    """``--dtype``, passed on as ``dtype``."""
    return click.option(
        "--dtype",
        type=click.Choice([dtype.label for dtype in DType], case_sensitive=False),
        default=default,
        show_default=default is not None,
        help="Element types. tf32: FP32 matrices, TF32 products; f16-f32: an FP32 C.",
    )


def problem_from(  # noqa: PLR0913, PLR0917  # one parameter for each option of problem_options
    size: str, layout: str, dtype: str, lda: int, ldb: int, ldc: int, alpha: float, beta: float
) -> Problem:
    """The problem that `problem_options` describe. Raises UsageError for what is none."""
    for name, factor in (("alpha", alpha), ("beta", beta)):
        if not math.isfinite(factor):
            raise UsageError(f"--{name} must be a finite number, got {factor}")
    m, n, k = Problem.parse_size(size)
    return Problem(
        *(m, n, k),
        *(Layout(layout), DType.parse(dtype)),
        *(lda, ldb, ldc),
        *(alpha, beta),
    )


def family_option(command: Command) -> Command:
    """Adds ``--family NAME|PATH``, passed on as ``family`` for `autogemm.space.load_family`."""
    return click.option(
        "--family",
        metavar="NAME|PATH",
        default="sgemm_simt",
        show_default=True,
        help="A family that ships, or a folder with NAME.yaml and NAME.cu.jinja.",
    )(command)


def fix_option(command: Command) -> Command:
    """Adds ``--fix BM=128,256``, a tuple of texts ``fix`` for `autogemm.space.parse_fix`."""
    return click.option(
        "--fix",
        multiple=True,
        metavar="NAME=V[,V]",
        help="Narrow a parameter to these values; repeatable.",
    )(command)


def gpu_option(command: Command) -> Command:
    """Adds ``--gpu NAME|auto``, passed on as ``gpu``."""
    return click.option(
        "--gpu",
        metavar="NAME|auto",
        default="auto",
        show_default=True,
        help="A GPU by its short name (see `autogemm gpus`); auto takes the attached one.",
    )(command)


def db_option(command: Command) -> Command:
    """Adds ``--db URL|PATH``, passed on as ``db`` (None: the default place)."""
    return click.option(
        "--db",
        metavar="URL|PATH",
        envvar="AUTOGEMM_DB",
        show_envvar=True,
        default=None,
        help="Tuning database: a SQLite file or a database URL. Default: autogemm.db in the "
        "user's data folder (Linux: ~/.local/share/autogemm).",
    )(command)


def device_facts(gpu: str) -> "Device":
    """The facts of a known GPU. ``auto`` is the attached one, else an H100, said on stderr.

    For commands that read limits only; nothing runs on the card. Raises NotFoundError for an
    unknown name.
    """
    from autogemm.catalogue.gpus import find_device

    if gpu != "auto":
        return find_device(gpu)
    from autogemm.targets import attached_gpus

    attached = attached_gpus()
    if attached:
        return attached[0].device
    device = find_device(FALLBACK_GPU)
    click.echo(
        f"no GPU is attached: using the limits of {device.name} (choose with --gpu)", err=True
    )
    return device
