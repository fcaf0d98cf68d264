"""``autogemm verify --lines``: the lines of the emitted sources that edge cases execute."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from autogemm.cli.output import Form, print_rows
from autogemm.cli.progress import watched
from autogemm.cli.prose import say
from autogemm.cli.table import print_table
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import KernelSource
from autogemm.space import Family
from autogemm.verify import (
    Case,
    CaseLines,
    CaseSet,
    Reach,
    counting,
    legal_case,
    reach_of,
    run_cases,
)

LINES_COLUMNS = (
    *("dtype", "config", "cases", "covering", "sources", "lines", "reached", "ways", "taken"),
    *("not_reached", "cover"),
)
_SUMMARY = LINES_COLUMNS[:-2]
# Without --wide.
SHORT = ("dtype", "config", "cases", "sources", "lines", "reached")
_UNREACHED = ("config_idx", "problem", "first", "last", "text")


def show_lines(
    family: Family, device: Device, sets: Sequence[CaseSet], source: KernelSource | None, form: Form
) -> None:
    """Run the cases of all configs in builds that count; print which lines ran and which did not.

    With ``source`` only the cases that are given this very source.
    """
    rows = list(_rows(family, device, sets, source))
    if form is not Form.TABLE:
        print_rows(rows, LINES_COLUMNS, form)
        return
    print_rows(rows, _SUMMARY, short=SHORT)
    _show_unreached(rows)
    ran, total = (sum(row[name] for row in rows) for name in ("reached", "lines"))
    say(f"\n{ran} of {total} lines of {sum(row['sources'] for row in rows)} sources ran")


def _show_unreached(rows: Sequence[dict[str, Any]]) -> None:
    found = [
        {"config_idx": number, **one}
        for number, row in enumerate(rows)
        for one in row["not_reached"]
    ]
    for title, chosen in (
        ("Lines that no case ran", [one for one in found if not one["is_branch"]]),
        (
            "Branches that no case took both ways",
            [one for one in found if one["is_branch"] and one["is_everywhere"]],
        ),
    ):
        if chosen:
            say()
            print_table(chosen, _UNREACHED, title=title)


def _rows(
    family: Family, device: Device, sets: Sequence[CaseSet], source: KernelSource | None
) -> Iterator[dict[str, Any]]:
    count = counting(family, Emulator())

    def count_legal(case: Case) -> CaseLines | None:
        # As `autogemm verify` does: a config is sought for a case when it is run.
        legal = legal_case(family, device, case)
        is_other = source is not None and (
            legal is None or render(family, legal.config, legal.problem).code != source.code
        )
        return None if legal is None or is_other else count(legal)

    cases = [(index, case) for index, each in enumerate(sets) for case in each.cases]
    done: list[list[CaseLines]] = [[] for _ in sets]
    results = run_cases(count_legal, [case for _, case in cases])
    with closing(results):
        shown = watched(results, len(cases), "cases")
        for (index, _), result in zip(cases, shown, strict=True):
            if result is not None:
                done[index].append(result)
    yield from (_row(each, reach_of(own)) for each, own in zip(sets, done, strict=True) if own)


def _row(of: CaseSet, reach: Reach) -> dict[str, Any]:
    return {
        "dtype": of.dtype.label,
        "config": of.config.label,
        "cases": reach.num_cases,
        "covering": len(reach.cover),
        "sources": reach.num_sources,
        "lines": reach.num_lines,
        "reached": reach.num_reached,
        "ways": reach.num_ways,
        "taken": reach.num_taken,
        "not_reached": [asdict(one) for one in reach.unreached],
        "cover": list(reach.cover),
    }
