"""Compares the figures that the documents quote with the results that are committed.

    python benchmarks/figures.py             every figure, what it is of, and whether it is true
    python benchmarks/figures.py --update    writes the figures of the results into the documents

A figure is marked in the same line, in a comment that a reader of the page does not see:

    FP32 is 1.373 times as fast. <!-- figure: 1.373 = suite_h200.json geometric_mean -->

The number is compared to as many digits as it is quoted with. What it is of is a file of
benchmarks/results and one of

    geometric_mean, geometric_mean_of_medians     of all rows of a suite
    lowest, count                                 the smallest ratio, the number of rows
    SHAPE FIELD                                   of one row: 8192 sustained_ratio
    SHAPE FIELD / FIELD                           the quotient of two of them
    /PATTERN/                                     what the group of a regular expression finds
    count /PATTERN/                               how often a pattern is found

A table is marked in the line above it, `<!-- table: suite_bf16_h100.json -->`: each number in a row
that begins with a shape must be one of that shape's row in one of the files, and one in a row that
begins with "geometric mean" one of their means.

In a line that links to a text of benchmarks/results each other decimal number must stand in it; one
that is computed from it, or of another source, is named: `<!-- computed: 0.04 -->`.

Figures of kernels hold for the text that was timed. A suite keeps the hash of each winner's text;
where it keeps none, or a template emits another one today, the marker ends with the word `older`
and the section says in words that it is of an earlier version of the templates.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
from suite_tables import geometric_mean, is_emitted_today

from autogemm.support.files import write_atomically

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MARKER = re.compile(r"<!-- figure: (?P<quote>\S+) = (?P<source>.*?)(?P<older>, older)? -->")
TABLE = re.compile(r"<!-- table: (?P<files>.*?)(?P<older>, older)? -->")
COMPUTED = re.compile(r"<!-- computed: (.*?) -->")
LINKED = re.compile(r"benchmarks/results/([\w.]+\.(?:txt|csv))")
ANY_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
CODE_SPAN = re.compile(r"`[^`]*`")
COMMENT = re.compile(r"<!--.*?-->")
LINK_TARGET = re.compile(r"\]\([^)]*\)")
# Not a part of a longer number or name; signs and units may stand around it.
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w]*\.?\d)(?![A-Za-z])")
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?:e[+-]?\d+)?(?![\w.]*\d)")
# Numbers of a row that no table shows, and that others could be taken for.
NOT_QUOTED = {"rounds", "num_trials", "trials", "seconds", "search_s", "finals_s"}
EARLIER = "earlier version of the templates"
# Pages on which every decimal number in a line about results is marked.
CLAIMS = ("README.md", "docs/results.md")


class FigureError(Exception):
    """A marker that says nothing that can be looked up."""


@dataclass(frozen=True)
class Fault:
    """Something that is not so, and in which line."""

    page: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.what}"


def pages() -> list[Path]:
    """The documents that may quote results."""
    patterns = ("*.md", "docs/**/*.md", "db/**/*.md", "contrib/**/*.md")
    return sorted(page for pattern in patterns for page in ROOT.glob(pattern))


def value_of(source: str) -> float:
    """Look up what a marker names. Raises FigureError for what is not there."""
    name, _, what = source.strip().partition(" ")
    if not (RESULTS / name).is_file():
        raise FigureError(f"no results {name!r}")
    if match := re.fullmatch(r"(count )?/(.*)/", what):
        found = re.findall(match[2], (RESULTS / name).read_text(), re.MULTILINE)
        if not match[1] and not found:
            raise FigureError(f"{name} has nothing like /{match[2]}/")
        return float(len(found) if match[1] else found[0])
    rows = rows_of(name)
    if what in SUMMARIES:
        return SUMMARIES[what](rows)
    words = what.split()
    if not (len(words) == 2 or (len(words) == 4 and words[2] == "/")):
        raise FigureError(f"{what!r} is nothing that can be looked up in {name}")
    row = row_of(rows, words[0])
    return field_of(row, words[1]) / (field_of(row, words[3]) if words[3:] else 1.0)


@cache
def content_of(name: str) -> dict[str, Any]:
    """A suite's JSON."""
    content: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return content


def rows_of(name: str) -> list[dict[str, Any]]:
    """The rows of a suite."""
    rows: list[dict[str, Any]] = content_of(name)["rows"]
    return rows


def row_of(rows: Sequence[dict[str, Any]], shape: str) -> dict[str, Any]:
    """The row of a shape. Raises FigureError if there is none."""
    for row in rows:
        if row["shape"] == shape:
            return row
    raise FigureError(f"no row of {shape!r}")


def field_of(row: dict[str, Any], field: str) -> float:
    """A number of a row. Raises FigureError if there is none."""
    if field == "ratio_of_medians":
        return of_medians(row)
    if not isinstance(row.get(field), int | float):
        raise FigureError(f"the row of {row['shape']} has no number {field!r}")
    return float(row[field])


def of_medians(row: dict[str, Any]) -> float:
    """The baseline's median time over the kernel's; computed where an older file lacks it."""
    baseline_us = row.get("baseline_us", row.get("cublas_us"))
    return float(row.get("ratio_of_medians", baseline_us / row["time_us"]))


SUMMARIES: dict[str, Callable[[Sequence[dict[str, Any]]], float]] = {
    "geometric_mean": lambda rows: geometric_mean([row["ratio"] for row in rows]),
    "geometric_mean_of_medians": lambda rows: geometric_mean([*map(of_medians, rows)]),
    "lowest": lambda rows: float(min(row["ratio"] for row in rows)),
    "count": lambda rows: float(len(rows)),
}


def rounded(value: float, quote: str) -> str:
    """The value with as many digits as the quote has."""
    if "e" in quote:
        digits = len(quote.partition("e")[0].partition(".")[2])
        return f"{value:.{digits}e}"
    return f"{value:.{len(quote.partition('.')[2])}f}"


@cache
def is_of_today(name: str) -> bool:
    """Whether each winner of a suite has the text that its family emits today."""
    if not name.endswith(".json"):
        return True
    return all("kernel_sha256" in row and is_emitted_today(row) for row in rows_of(name))


def markers_of(line: str) -> list[re.Match[str]]:
    """The markers of a line; one in a code span is shown to the reader, and says nothing."""
    return [*MARKER.finditer(CODE_SPAN.sub("", line))]


def faults_of(page: str, text: str) -> Iterator[Fault]:
    """Yield each figure of a page that is not what its result says."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        for marker in markers_of(line):
            for what in faults_of_marker(marker, line, section_of(lines, number)):
                yield Fault(page, number, what)
        if table := TABLE.search(CODE_SPAN.sub("", line)):
            for what in faults_of_age(table, section_of(lines, number)):
                yield Fault(page, number, what)
            for place, what in faults_of_table(table["files"].split(", "), lines, number):
                yield Fault(page, place, what)
    for number, line in enumerate(lines, 1):
        for quote in unfounded(line):
            yield Fault(page, number, f"{quote} is not in the files that the line links to")
    if page in CLAIMS:
        yield from unmarked(page, lines)


def faults_of_marker(marker: re.Match[str], line: str, section: str) -> Iterator[str]:
    """Yield what is wrong with one figure."""
    quote, source = marker["quote"], marker["source"]
    if quote not in NUMBER.findall(seen(line)):
        yield f"the line does not say {quote}, of which its marker is"
        return
    try:
        true = rounded(value_of(source), quote)
    except FigureError as error:
        yield str(error)
        return
    if true != quote:
        yield f"{quote} is {true} in {source}"
    yield from faults_of_age(marker, section)


def faults_of_age(marker: re.Match[str], section: str) -> Iterator[str]:
    """Yield what a reader is not told of the version that was timed."""
    source = marker.groupdict().get("source")
    files = [source.split()[0]] if source else marker["files"].split(", ")
    is_older = not all(map(is_of_today, files))
    if is_older and not marker["older"]:
        yield (
            f"{files[0]} is of other kernels than are emitted today: measure again, or mark it "
            f"', older' and say so: '{EARLIER}'"
        )
    elif marker["older"] and not is_older:
        yield f"{files[0]} is of the kernels of today: take ', older' away"
    elif is_older and EARLIER not in section:
        yield f"the section does not say '{EARLIER}'"


def faults_of_table(
    files: Sequence[str], lines: Sequence[str], number: int
) -> Iterator[tuple[int, str]]:
    """Yield numbers of the table below line ``number`` that are in no row of its shape."""
    for place, line in enumerate(lines[number:], number + 1):
        if not line.startswith("|"):
            if line.strip():
                return
            continue
        label, *cells = (cell.strip() for cell in seen(line).strip().strip("|").split("|"))
        known = numbers_of(files, label)
        for quote in NUMBER.findall(" ".join(cells)):
            if known and not any(rounded(value, quote) == quote for value in known):
                yield place, f"{quote} is in no row of {label} in {', '.join(files)}"


def numbers_of(files: Sequence[str], label: str) -> list[float]:
    """The numbers of a shape's rows, or the means; empty for another label."""
    if label == "geometric mean":
        return [value_of(f"{name} geometric_mean") for name in files]
    rows = [row for name in files for row in rows_of(name) if row["shape"] == label]
    return [
        float(value)
        for row in rows
        for field, value in (*row.items(), ("ratio_of_medians", of_medians(row)))
        if isinstance(value, int | float) and field not in NOT_QUOTED
    ]


def unfounded(line: str) -> Iterator[str]:
    """Yield decimal numbers of a line that stand in none of the texts that it links to."""
    names = [name for name in LINKED.findall(line) if (RESULTS / name).is_file()]
    if not names:
        return
    spoken = spoken_of(line)
    known = [value for name in names for value in numbers_in(name)]
    for quote in DECIMAL.findall(seen(line)):
        if quote not in spoken and not any(rounded(value, quote) == quote for value in known):
            yield quote


def spoken_of(line: str) -> set[str]:
    """The numbers of a line that markers in it speak of."""
    computed = (word for found in COMPUTED.findall(line) for word in found.split())
    return {*(marker["quote"] for marker in markers_of(line)), *computed}


@cache
def numbers_in(name: str) -> list[float]:
    """Every number of a text."""
    return [float(word) for word in ANY_NUMBER.findall((RESULTS / name).read_text())]


def unmarked(page: str, lines: Sequence[str]) -> Iterator[Fault]:
    """Yield decimal numbers in lines about results that no marker speaks of."""
    is_code = False
    for number, line in enumerate(lines, 1):
        is_code = is_code != line.startswith("```")
        if is_code or line.startswith("    ") or not is_claim(line):
            continue
        marked = spoken_of(line)
        for quote in DECIMAL.findall(seen(line)):
            if quote not in marked:
                yield Fault(page, number, f"{quote} has no marker: benchmarks/figures.py says how")


def is_claim(line: str) -> bool:
    """Whether a line says how fast something is."""
    return "benchmarks/results/" in line or bool(re.search(r"\d (times|TFLOP)", seen(line)))


def seen(line: str) -> str:
    """The line as a reader sees its words: without comments and the targets of links."""
    return LINK_TARGET.sub("]", COMMENT.sub("", line))


def section_of(lines: Sequence[str], number: int) -> str:
    """The section around a line, from its heading to the next one."""
    first = next((at for at in range(number - 1, -1, -1) if lines[at].startswith("#")), 0)
    ends = (at for at in range(number, len(lines)) if lines[at].startswith("#"))
    return "\n".join(lines[first : next(ends, len(lines))])


def updated(text: str) -> str:
    """The page with each marked figure as its result has it, in the line and in the marker."""
    return "\n".join(map(_updated_line, text.split("\n")))


def _updated_line(line: str) -> str:
    for marker in markers_of(line):
        quote = marker["quote"]
        true = rounded(value_of(marker["source"]), quote)
        line = re.sub(rf"(?<![\w.]){re.escape(quote)}(?!\w)(?!\.\d)", true, line)
    return line


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--update", is_flag=True, help="Write the figures of the results into the pages.")
def main(update: bool) -> None:
    """Compare quoted figures with committed results."""
    num_faults = 0
    for path in pages():
        page, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if update and (new := updated(text)) != text:
            write_atomically(path, new.encode())
            text = new
            click.echo(f"{page}: written")
        for number, line in enumerate(text.splitlines(), 1):
            for marker in markers_of(line):
                click.echo(f"{page}:{number}: {marker['quote']} = {marker['source']}")
            if "<!-- fill:" in line:
                click.echo(f"TO FILL {page}:{number}: {line[:100]}")
        for fault in faults_of(page, text):
            num_faults += 1
            click.echo(f"WRONG {fault}")
    sys.exit(1 if num_faults else 0)


if __name__ == "__main__":
    main()
