"""The display of results at a Python prompt and in a notebook: one line, or a small table.

The line is the answer, not the value: ``<TuneResult: ...>`` cannot be typed in.
"""

from collections.abc import Iterable, Sequence
from html import escape

from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, FinalsEntry


def speed_words(problem: Problem, time_us: float | None, ratio: float | None = None) -> str:
    """``2541 us, 54.1 TFLOP/s, 1.048 x cuBLAS``; the ratio is left out where there is none."""
    if time_us is None:
        return "no time"
    parts = [f"{time_us:.4g} us", f"{problem.tflops(time_us):.3g} TFLOP/s"]
    return ", ".join([*parts, f"{ratio:.3f} x cuBLAS"] if ratio else parts)


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table for a notebook; every text is escaped, and None is an empty cell."""
    cells = [["" if cell is None else escape(str(cell)) for cell in row] for row in rows]
    body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
    names = "</th><th>".join(map(escape, head))
    return (
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr><th>{names}</th></tr></thead><tbody>{body}</tbody></table>"
    )


FINALS_HEAD = ("", "config", "time us", "TFLOP/s", "x cuBLAS", "interval")


def finals_html(caption: str, problem: Problem, finals: Finals) -> str:
    """Return the finals as a table for a notebook: finalists, the best first, and the baseline."""
    rows = [
        _finals_row(str(place), problem, entry) for place, entry in enumerate(finals.entries, 1)
    ]
    return html_table(
        caption, FINALS_HEAD, [*rows, _finals_row("baseline", problem, finals.baseline)]
    )


def _finals_row(place: str, problem: Problem, entry: FinalsEntry) -> tuple[object, ...]:
    interval = entry.interval and f"{entry.interval[0]:.3f}..{entry.interval[1]:.3f}"
    name = entry.name if entry.config is None else f"{entry.config.family} {entry.config}"
    speed = f"{problem.tflops(entry.time_us):.2f}"
    return (place, name, f"{entry.time_us:.4g}", speed, f"{entry.ratio:.3f}", interval)
