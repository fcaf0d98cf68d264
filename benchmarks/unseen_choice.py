"""Measures what the choice for a size that nobody tuned loses, beside a search of that size.

    benchmarks/gpu_box.sh run python3 benchmarks/unseen_choice.py --commit COMMIT --out OUT

Shapes are drawn as `suite.py --unseen` draws them; their layouts are nn, nt, tn, tt in turns. Of
each, in each type, the kernel that `autogemm.gemm` takes with the catalogue and an empty database,
and the winner of a search of some seconds, are timed in the same finals, beside cuBLAS. The loss is
the time of the choice over that of the winner, minus 1; 0 where both are the same text, and below 0
where the search found nothing as fast.
Written after each row: left_out_GPU.json and .txt; a call with rows of an earlier one goes on.
"""

import json
import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from suite_shapes import LAW, unseen_shapes
from suite_tables import gpu_label

from autogemm.compile import Compiler
from autogemm.dispatch import Chooser
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.finals import paired_ratio
from autogemm.store import Store, shipped_rows
from autogemm.support.errors import AutogemmError
from autogemm.support.files import write_atomically
from autogemm.targets import Target
from autogemm.tuning import TuneOptions, TuneRequest, open_run, request_for, tune
from autogemm.tuning.task.build import Builder

ROUNDS = 12
# Of the search alone; choice and winner run in finals of their own.
FINALISTS = 4
Row = dict[str, Any]


def measured(
    request: TuneRequest, chooser: Chooser, target: Target, compiler: Compiler | None, store: Store
) -> Row:
    """Choose for the problem of the request, search it, and time both in the same rounds.

    Raises AutogemmError where nothing is legal or nothing ran correctly.
    """
    problem = request.problem
    began = time.perf_counter()
    choice = chooser.choose(problem)
    choose_ms = 1e3 * (time.perf_counter() - began)
    found_by_search = tune(request, target, compiler, store).finals
    winner = found_by_search.winner.config if found_by_search is not None else None
    if winner is None:
        raise AutogemmError("the search found no kernel that ran correctly")
    builder = Builder(request.families, problem, target.device, compiler)
    sources = [builder.render(one) for one in (choice.config, winner)]
    distinct = {one.sha256: one for one in sources}
    candidates = [builder.start(one).candidate() for one in distinct.values()]
    target.prepare(problem, request.measure)
    finals = target.finals(candidates, ROUNDS, request.seed)
    found = {entry.kernel_sha256: entry for entry in finals.entries}
    missing = [one.config for one in distinct.values() if one.sha256 not in found]
    if missing:
        raise AutogemmError(f"{missing[0]} gave a wrong result in the finals")
    ours, best = (found[one.sha256] for one in sources)
    slower = paired_ratio(ours.samples_us, best.samples_us, request.seed)
    return {
        "shape": problem.size_label,
        "layout": problem.layout.value,
        "dtype": problem.dtype.label,
        "loss": slower.ratio - 1,
        "loss_low": slower.low - 1,
        "loss_high": slower.high - 1,
        "loss_of_medians": ours.time_us / best.time_us - 1,
        "ratio": ours.ratio,
        "ratio_of_winner": best.ratio,
        "time_us": ours.time_us,
        "why": choice.why,
        "family": choice.family.name,
        "config": choice.config.as_dict(),
        "winner_family": winner.family,
        "winner_config": winner.as_dict(),
        "choose_ms": choose_ms,
    }


def table(results: dict[str, Any]) -> str:
    """Return a line for each row, and the mean and worst loss of each type."""
    rows: list[Row] = results["rows"]
    lines = [
        f"{results['gpu']}, {results['date']}, commit {results['commit']}",
        f"command: {results['command']}",
        results["law"],
        "loss: time of the choice over that of the winner of a search, minus 1, in per cent: the",
        "median of the paired ratios of interleaved rounds; ratio: the fastest call of cuBLAS over",
        "the choice, and over the winner; ms: what the first choice for the size took",
        "",
        f"{'MxNxK':>16} {'':<2} {'type':<5}{'loss':>7} {'95 %':^15}{'medians':>8}{'ratio':>7}"
        f"{'winner':>8}{'ms':>7}  choice",
    ]
    for row in rows:
        interval = f"{100 * row['loss_low']:.1f}..{100 * row['loss_high']:.1f}"
        lines.append(
            f"{row['shape']:>16} {row['layout']:<2} {row['dtype']:<5}{100 * row['loss']:7.1f} "
            f"{interval:^15}{100 * row['loss_of_medians']:8.1f}{row['ratio']:7.3f}"
            f"{row['ratio_of_winner']:8.3f}{row['choose_ms']:7.0f}  {row['family']}, {row['why']}"
        )
    lines.append("")
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        losses = [max(0.0, row["loss"]) for row in rows if row["dtype"] == dtype]
        lines.append(
            f"{dtype}: {len(losses)} sizes, mean loss {100 * fmean(losses):.1f} %, "
            f"worst {100 * max(losses):.1f} %"
        )
    lines += [f"failed: {name}: {why}" for name, why in results["failed"].items()]
    return "\n".join([*lines, ""])


def problems(count: int, seed: int, dtypes: Sequence[DType]) -> list[Problem]:
    """Return the drawn problems: each shape in its layout, in all types."""
    shapes = zip(unseen_shapes(count, seed), (tuple(Layout) * count)[:count], strict=True)
    return [
        Problem.of_size(shape, layout, dtype) for (shape, layout), dtype in product(shapes, dtypes)
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--count", default=100, help="Shapes, each in all types.", show_default=True)
@click.option("--seed", default=7, help="Of the draw.", show_default=True)
@click.option("--types", default="f32,bf16,f16,tf32", help="By commas.", show_default=True)
@click.option("--family", multiple=True, help="As of autogemm tune.")
@click.option("--budget", default=3.0, help="Search time a problem in s.", show_default=True)
@click.option("--limit", default=math.inf, help="Begin no row after so many s.")
@click.option("--commit", default="", help="The commit that is measured, for the record.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def main(count: int, seed: int, types: str, out: Path, **options: Any) -> None:
    """Losses of the choice for sizes that were not tuned."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    asked = problems(count, seed, [DType.parse(one) for one in types.split(",")])
    tuning = TuneOptions(
        require_gpu=True,
        family=options["family"],
        trials=None,
        budget_s=options["budget"],
        certify=False,
        fresh=True,
        finalists=FINALISTS,
        rounds=ROUNDS,
    )
    with ExitStack() as stack:
        command = " ".join(["benchmarks/unseen_choice.py", *_words(sys.argv[1:], out)])
        place = str(out / "left_out.db")
        opened = open_run(stack, asked[0], tuning, place, command=command, notify=click.echo)
        device = opened.target.device
        path = out / f"left_out_{gpu_label(device.name)}.json"
        results: dict[str, Any] = {
            "gpu": device.name,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": options["commit"],
            "command": command,
            "law": f"{count} shapes of seed {seed}: {LAW}",
            "rows": json.loads(path.read_text())["rows"] if path.exists() else [],
            "failed": {},
        }
        families = opened.request.families
        shipped = shipped_rows([one.name for one in families], device.arch)
        chooser = Chooser(shipped, families, device)
        known = {(row["shape"], row["layout"], row["dtype"]) for row in results["rows"]}
        for problem in asked:
            if (problem.size_label, problem.layout.value, problem.dtype.label) in known:
                continue
            if time.monotonic() - began > options["limit"]:
                click.echo(f"stopped before {problem.label}", err=True)
                break
            request = request_for(problem, tuning, (), command)
            try:
                row = measured(request, chooser, opened.target, opened.compiler, opened.store)
                results["rows"].append(row)
            except AutogemmError as error:
                results["failed"][problem.label] = str(error)
            write_atomically(path, (json.dumps(results, indent=1) + "\n").encode())
            write_atomically(path.with_suffix(".txt"), table(results).encode())
    click.echo(table(results))


def _words(arguments: Sequence[str], out: Path) -> list[str]:
    return ["OUT" if one == str(out) else one for one in arguments]


if __name__ == "__main__":
    main()
