"""``autogemm db history`` and ``compare``: how the best kernels changed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from autogemm.cli import rows as db_rows
from autogemm.cli.output import Form
from autogemm.cli.prose import say
from autogemm.cli.rows import Columns, FlatRow, open_database, print_rows_as
from autogemm.insight.analysis import Pair, compare_sides, history
from autogemm.model.hardware.device import short_gpu_name
from autogemm.model.results.change import Compared, Figure
from autogemm.model.results.columns import ENVIRONMENT, RATIO, row_of, under
from autogemm.store import BestQuery

SPEED_UP: Columns = ("verdict", "speed_up", "speed_up_low", "speed_up_high", "by")

HISTORY_TABLE: Columns = (
    *(*db_rows.SHORT_PLACE, "driver", "compiler", "cublas", "autogemm", "time_us"),
    *("ratio", *SPEED_UP, "kernel_id", "measured_at"),
)
HISTORY_SHORT: Columns = (*db_rows.SHORT_PLACE, "driver", "time_us", "verdict")
HISTORY: Columns = (*db_rows.BEST, *SPEED_UP, "template_sha256", *ENVIRONMENT, "objective")
_HISTORY = {**under("environment", ENVIRONMENT), **under("", ("template_sha256", "objective"))}

COMPARED_TABLE: Columns = (
    *("problem", "provenance", "first", "second", "first_time_us", "second_time_us"),
    *("first_ratio", "second_ratio", *SPEED_UP),
)
COMPARED_SHORT: Columns = (
    *("problem", "provenance", "first_time_us", "second_time_us", "verdict", "speed_up"),
)
COMPARED: Columns = (
    *("size", "layout", "dtype", "provenance", *db_rows.PROBLEM, "l2", "fill"),
    *(
        f"{side}_{name}"
        for side in ("first", "second")
        for name in ("gpu", *ENVIRONMENT, "time_us", *RATIO, "kernel_id", "run_id")
    ),
    *SPEED_UP,
)

# How many rows a table of history shows.
TABLE_ROWS = 40

WORDS = (
    "SAME: the 95 % interval of speed_up lies within 1 % of 1; FAST, SLOW: it lies above or below "
    "1; AMBG: none of these, or a side has fewer than six samples"
)


def run_history(query: BestQuery, db: str | None, form: Form) -> None:
    """Print the best kernels over environments, the oldest first."""
    # One more than is shown tells whether there is more.
    limit = TABLE_ROWS + 1 if form is Form.TABLE else None
    with open_database(db) as store:
        steps = history(store, query, limit)
    rows = [
        {
            **db_rows.best_row(step.row),
            **row_of(step.row, _HISTORY),
            **speed_up(step.compared, step.by),
        }
        for step in steps
    ]
    if not rows:
        say("no results match", err=True)
    if limit is not None and len(rows) == limit:
        rows.pop()
        say(f"only the first {TABLE_ROWS} rows: --size, --gpu, or --json for all", err=True)
    print_rows_as(rows, HISTORY, HISTORY_TABLE, form, short=HISTORY_SHORT)


def run_compare(first: str, second: str, by: str | None, db: str | None, form: Form) -> None:
    """Print the best kernels of two sides next to each other."""
    with open_database(db) as store:
        pairs = compare_sides(store, first, second, Figure(by) if by else None)
    rows = [_pair_row(pair) for pair in pairs]
    print_rows_as(rows, COMPARED, COMPARED_TABLE, form, short=COMPARED_SHORT)
    if form is Form.TABLE:
        print_words(rows)


def _pair_row(pair: Pair) -> FlatRow:
    row = {**db_rows.best_row(pair.first), **speed_up(pair.compared, pair.by)}
    for side, result in (("first", pair.first), ("second", pair.second)):
        facts = {**db_rows.best_row(result), **asdict(result.environment)}
        row |= {f"{side}_{name}": value for name, value in facts.items()}
        row[side] = f"run {facts['run_id']} {short_gpu_name(facts['gpu'])}"
    return row


def print_words(rows: Sequence[FlatRow]) -> None:
    """Print how often each word stands in the rows, and its meaning."""
    counts = Counter(str(row["verdict"]) for row in rows if row.get("verdict"))
    say()
    say(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    say(WORDS)


def speed_up(compared: Compared | None, by: object = None) -> FlatRow:
    """Return the columns SPEED_UP."""
    if compared is None:
        return {}
    values = (compared.change, compared.ratio, compared.low, compared.high, by)
    return dict(zip(SPEED_UP, values, strict=True))
