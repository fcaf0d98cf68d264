"""Options that several commands share, and the frozen values that they become."""

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from autogemm.cli.output import listing_options
from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Provenance, Status
from autogemm.store import BestQuery
from autogemm.support.errors import UsageError

Command = Callable[..., Any]

DTYPES = tuple(dtype.label for dtype in DType)
LAYOUTS = tuple(layout.value for layout in Layout)

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

# Ids have 32 bits in every database.
MAX_NUMBER = 2**31 - 1

# A seed has the 63 bits that a database keeps.
MAX_SEED = 2**63 - 1

# Stands for the newest benchmark instead of a number.
LAST = "last"
# A benchmark by its number, LAST, or the file of a listing.
BenchName = int | str | Path


def grouped(keyword: str, kind: type[Any], *options: Callable[[Command], Command]) -> Command:
    """Return a decorator that adds ``options`` and passes the command one value of ``kind``.

    ``kind`` is a dataclass; the command gets one made from the options that are its fields as
    ``keyword``, and the others as they are.
    """
    names = {field.name for field in fields(kind)}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_value(**values: Any) -> Any:
            own = {name: values.pop(name) for name in names & values.keys()}
            return command(**{keyword: kind(**own)}, **values)

        decorated: Command = with_value
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


@dataclass(frozen=True, slots=True)
class MatrixOptions:
    """Options of a problem other than its size: ``--layout --dtype --lda ...``."""

    layout: Layout
    dtype: str
    lda: int
    ldb: int
    ldc: int
    alpha: float
    beta: float
    epilogue: str
    batch: str
    groups: str

    def problem(
        self, size: str, layout: Layout | None = None, batch: str = "", groups: str = ""
    ) -> Problem:
        """Return the problem of that size; what is given has priority over the options. Raises
        UsageError for values that are not allowed.
        """
        for name, factor in (("alpha", self.alpha), ("beta", self.beta)):
            if not math.isfinite(factor):
                raise UsageError(f"--{name} must be a finite number, got {factor}")
        return Problem(
            *Problem.parse_size(size),
            *(layout or self.layout, DType.parse(self.dtype)),
            *(self.lda, self.ldb, self.ldc),
            *(self.alpha, self.beta),
            Epilogue.parse(self.epilogue),
            Batch.parse(batch or self.batch),
            Groups.parse(groups or self.groups),
        )


@dataclass(frozen=True, slots=True)
class ProblemOptions(MatrixOptions):
    """Options of one problem."""

    size: str

    @property
    def value(self) -> Problem:
        """The problem. Raises UsageError for values that are not allowed."""
        return self.problem(self.size)


def choice_option(
    name: str,
    kind: type[StrEnum],
    *,
    default: StrEnum | None = None,
    case_sensitive: bool = True,
    **more: Any,
) -> Command:
    """Return an option that takes the values of an enum, passed on as its member or None."""
    return click.option(
        name,
        type=click.Choice([one.value for one in kind], case_sensitive=case_sensitive),
        callback=lambda context, parameter, value: None if value is None else kind(value),
        default=None if default is None else default.value,
        show_default=default is not None,
        **more,
    )


def dtype_option(default: str | None = None) -> Command:
    """Add ``--dtype``, passed on as ``dtype``."""
    return click.option(
        "--dtype",
        type=click.Choice(DTYPES, case_sensitive=False),
        # All of them would be one word of 150 letters.
        metavar="DTYPE",
        default=default,
        show_default=default is not None,
        help=f"Element types: {', '.join(DTYPES)}. tf32: FP32 matrices and TF32 products; f16-f32: "
        "C is FP32; e4m3: C is BF16; e4m3-e4m3: C is E4M3; i8: C is 32-bit integers.",
    )


# ``--epilogue EXPRESSION``, a text ``epilogue``, empty for the plain product.
epilogue_option = click.option(
    "--epilogue",
    metavar="EXPRESSION",
    default="",
    help="Expression applied to each sum, as in relu(acc + bias[n]). Default: alpha and beta.",
)

# ``--batch COUNT``, a text ``batch``, empty for one product.
batch_option = click.option(
    "--batch",
    metavar="COUNT",
    default="",
    help="Number of products in one launch, optionally followed by the rows between matrices "
    "(64 rows_a=0: all share A). Default: one.",
)

# ``--groups SPREAD``, a text ``groups``, empty for none.
groups_option = click.option(
    "--groups",
    metavar="SPREAD",
    default="",
    help="Groups of rows, each with its own B, and the distribution of rows over them: 8 uniform, "
    "128 zipf=1.1 seed=3, or the rows of each (4,0,17,128); with masked: groups of a fixed "
    "capacity. In layout tn groups divide K. Default: none.",
)

MATRIX_OPTIONS = (
    choice_option(
        "--layout",
        Layout,
        help="op(A) then op(B): n as stored, t transposed; all matrices are row-major.",
        default=Layout.NN,
        case_sensitive=False,
    ),
    dtype_option(default=DType.F32.label),
    click.option("--lda", default=0, help="Leading dimension of A; 0 means packed."),
    click.option("--ldb", default=0, help="Leading dimension of B; 0 means packed."),
    click.option("--ldc", default=0, help="Leading dimension of C; 0 means packed."),
    click.option("--alpha", default=1.0, show_default=True, help="Factor of op(A) op(B)."),
    click.option("--beta", default=0.0, show_default=True, help="Factor of the old C."),
    epilogue_option,
    batch_option,
    groups_option,
)


# ``--layout``, passed on as a Layout.
layout_option = choice_option(
    "--layout", Layout, help="op(A) then op(B): n as stored, t transposed.", default=Layout.NN
)

# ``--status``, passed on as a Status or None.
status_option = choice_option(
    "--status", Status, help=f"Only trials with this status: {', '.join(Status)}.", metavar="STATUS"
)


def count_option(
    name: str, default: int, help: str, *, least: int = 1, most: int | None = None
) -> Command:
    """Return an option that takes a whole number of at least ``least``, at most ``most``."""
    kind = click.IntRange(min=least, max=most)
    return click.option(name, type=kind, default=default, show_default=True, help=help)


def off_option(name: str, help: str) -> Command:
    """Return a flag such as ``--no-prune``, passed on as ``prune``: False where it is given."""
    keyword = name.removeprefix("--no-").replace("-", "_")
    return click.option(
        *(name, keyword), is_flag=True, callback=lambda context, parameter, off: not off, help=help
    )


def time_option(name: str, keyword: str, default: str, help: str) -> Command:
    """Return an option that takes a time, passed on as ``keyword`` in seconds or None."""
    return click.option(
        *(name, keyword),
        metavar="TIME",
        callback=seconds,
        default=default,
        show_default=True,
        help=help,
    )


# ``--size --layout --dtype --lda --ldb --ldc --alpha --beta`` as one ``problem``.
problem_options = grouped(
    "problem",
    ProblemOptions,
    click.option(
        "--size", default="4096", show_default=True, help="M=N=K as one number, or MxNxK."
    ),
    *MATRIX_OPTIONS,
)


# ``--family NAME|PATH``, passed on as ``family`` for `autogemm.space.load_family`.
family_option = click.option(
    "--family",
    metavar="NAME|PATH",
    default="sgemm_simt",
    show_default=True,
    help="A family that ships, or a folder with NAME.yaml and NAME.cu.jinja.",
)


# ``--rung NAME``, passed on as ``rung`` for `autogemm.cli.lookup.family_and_rung`.
rung_option = click.option(
    "--rung",
    metavar="NAME",
    help="A rung of the ladder (`autogemm bench --list`), instead of a seed.",
)


# ``--fix BM=128,256``, a tuple of texts ``fix`` for `autogemm.space.parse_fix`.
fix_option = click.option(
    "--fix",
    multiple=True,
    metavar="NAME=V[,V]",
    help="Restrict a parameter to these values; repeatable.",
)


@dataclass(frozen=True, slots=True)
class ConfigOptions:
    """Options that name one config: a rung, a seed or JSON, changed by ``--fix``."""

    family: str
    rung: str | None
    fix: tuple[str, ...]
    seed_index: int | None
    config_json: str | None

    @property
    def is_given(self) -> bool:
        """Whether any of them names a config rather than only a family."""
        named = (self.rung, self.seed_index, self.config_json)
        return bool(self.fix) or any(one is not None for one in named)


# ``--family --rung --fix --seed-index --config`` as one ``config``.
config_options = grouped(
    "config",
    ConfigOptions,
    family_option,
    rung_option,
    fix_option,
    click.option(
        "--seed-index",
        type=click.IntRange(min=0),
        help="The seed of the family that --fix changes, counted from 0.  [default: 0]",
    ),
    click.option(
        "--config", "config_json", metavar="JSON", help="A complete config instead of a seed."
    ),
)


# ``--gpu NAME|auto``, passed on as ``gpu`` for `autogemm.cli.lookup.device_facts`.
gpu_option = click.option(
    "--gpu",
    metavar="NAME|auto",
    default="auto",
    show_default=True,
    help="A GPU by its short name (see `autogemm gpus`); auto: the attached one.",
)


# ``--db URL|PATH``, passed on as ``db`` (None: the default place).
db_option = click.option(
    "--db",
    metavar="URL|PATH",
    envvar="AUTOGEMM_DB",
    show_envvar=True,
    default=None,
    help="Tuning database: a SQLite file or a database URL. Default: autogemm.db in the "
    "user's data folder (Linux: ~/.local/share/autogemm).",
)


def is_typed(option: str) -> bool:
    """Return whether an option was typed, rather than set by the environment or by default."""
    given = click.get_current_context().get_parameter_source(option)
    return given is click.core.ParameterSource.COMMANDLINE


def seconds(context: click.Context, parameter: click.Parameter, text: str) -> float | None:
    """Parse ``90s``, ``2m``, ``1h`` or a number of seconds into seconds; ``none`` is None.

    Raises click.BadParameter for anything else, and for zero.
    """
    text = text.strip().lower()
    if text == "none":
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)", text)
    duration_s = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not duration_s > 0:
        raise click.BadParameter(f"{text!r} is not a time: write 90s, 2m, 1h or none")
    return duration_s


def names_of(text: str | None) -> tuple[str, ...]:
    """Return the names in ``a, b,c``; none for None."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def bench_option(*names: str, help: str) -> Callable[[Command], Command]:
    """Return an option that takes the number of a benchmark, ``last``, which stays a text, or a
    file of ``autogemm bench --json``, passed on as a path.
    """
    return click.option(*names, metavar=f"ID|{LAST}|FILE", callback=_bench_number, help=help)


def _bench_number(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> BenchName | None:
    if value is None or value == LAST:
        return value
    if value.endswith(".json"):
        return Path(value)
    if not (value.isascii() and value.isdecimal() and 1 <= int(value[:11]) <= MAX_NUMBER):
        raise click.BadParameter(
            f"{value!r} is neither the number of a benchmark, nor {LAST}, nor a .json file"
        )
    return int(value)


def bench_id_of(number: BenchName | None) -> int | None:
    """Return the number that the store takes for the option's value: None is the newest."""
    return number if isinstance(number, int) else None


# ``--gpu --size --layout --dtype --family --run --provenance`` as one ``query``.
filter_options = grouped(
    "query",
    BestQuery,
    click.option("--gpu", metavar="NAME", help="Any part of the GPU's name."),
    click.option("--size", metavar="SIZE", help="4096 or MxNxK."),
    click.option(
        "--layout", type=click.Choice(LAYOUTS), help="op(A) then op(B): n as stored, t transposed."
    ),
    click.option("--dtype", type=click.Choice(DTYPES), metavar="DTYPE", help="Element types."),
    click.option("--epilogue", metavar="EXPRESSION", help="Epilogue, or none."),
    click.option("--batch", metavar="COUNT", help="Number of products; 1 means no batch."),
    click.option("--groups", metavar="COUNT", help="Number or distribution of groups, or none."),
    click.option("--family", metavar="NAME", help="Kernel family."),
    click.option("--run", "run_id", type=click.IntRange(1, MAX_NUMBER), help="Only this run."),
    choice_option(
        "--provenance", Provenance, help="Measured by autogemm, or read from a recording."
    ),
)


def stored_options(command: Command) -> Command:
    """Add ``--db --json --csv``, passed on as ``db`` and ``form``."""
    return db_option(listing_options(command))


def query_options(command: Command) -> Command:
    """Add `filter_options` and `stored_options`."""
    decorated: Command = filter_options(stored_options(command))
    return decorated
