"""Makes the catalogue of winners (db/catalogue/) from the results that are committed.

    python benchmarks/catalogue.py

Nothing is measured here. Of each problem on a GPU, exact and emulated apart, the newest result
whose text is still emitted counts, else the newest. Configs are completed by their families as they
are today, and left out where they are no longer legal. A test (tests/unit/test_catalogue.py) fails
where templates or search spaces have changed so that an entry says what is no longer true.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any

from committed import RESULTS, ROUNDS, Committed, committed, emitted, listed_problem

from autogemm.catalogue.gpus import find_device
from autogemm.catalogue.winners import FILE_NAME, TimedKernel, Winner, write_winners
from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CacheState, FinalsEntry
from autogemm.model.results.stored import TimedText
from autogemm.space import Family, broken_constraints, default_families
from autogemm.support.errors import AutogemmError, UsageError
from autogemm.support.resources import data_folder

PATH = data_folder("db") / "catalogue" / FILE_NAME
# Figures of a catalogue; more would be noise that does not compress.
DIGITS = 5


def main() -> None:
    found = catalogue()
    counts = Counter((one.gpu, one.problem.dtype.label, str(one.text)) for one in found)
    for (gpu, dtype, text), number in sorted(counts.items()):
        print(f"{gpu}  {dtype:>8}  text {text:>8}  {number}")
    PATH.parent.mkdir(exist_ok=True)
    write_winners(PATH, found)
    kernels = sum(len(one.kernels) for one in found)
    print(f"{PATH}: {len(found)} problems, {kernels} kernels, {PATH.stat().st_size} bytes")


def stale(found: Iterable[Winner]) -> Iterator[str]:
    """Yield a line for each entry that no longer holds for today's families."""
    for one in found:
        where = f"{one.problem.label} on {one.gpu}"
        if not all(is_legal(kernel.config, one.problem, one.gpu) for kernel in one.kernels):
            yield f"{where}: a config is not legal (any more)"
        elif (text := text_of(one.config, one.problem, one.kernel_sha256)) is not one.text:
            yield f"{where}: its text is {text}, the entry says {one.text}"


def catalogue() -> list[Winner]:
    """All winners: by GPU, type, size and layout."""
    chosen: dict[object, Winner] = {}
    for one in (*without_rounds(), *map(with_rounds, committed(config_of=as_today))):
        if one is None:
            continue
        key = (one.gpu, one.problem, one.l2, "emulated" in one.config.family)
        known = chosen.get(key)
        if known is None or _rank(one) >= _rank(known):
            chosen[key] = one
    return sorted(
        chosen.values(),
        key=lambda one: (one.gpu, one.problem.dtype.label, one.problem.flops, str(one.problem)),
    )


def _rank(one: Winner) -> tuple[bool, str]:
    return (one.text is TimedText.THIS, one.date)


def with_rounds(one: Committed) -> Winner | None:
    """A problem with the times of all its finalists; None where its winner is not legal today."""
    spec, finals = one.row.spec, one.row.finals
    kernels = [_kernel(entry) for entry in finals.entries if entry.config is not None]
    return _winner(
        one.listed,
        one.table,
        f"benchmarks/results/{one.file}",
        spec.problem,
        kernels,
        finals.baseline.name,
        finals.baseline.time_us,
    )


def _kernel(entry: FinalsEntry) -> TimedKernel:
    assert entry.config is not None, "a baseline is no kernel"
    figures = map(_rounded, (entry.time_us, entry.ratio, entry.ratio_low, entry.ratio_high))
    return TimedKernel(entry.config, *figures)


def without_rounds() -> Iterator[Winner | None]:
    """Problems of which only the winner is known: of tables without a file of rounds."""
    for path in sorted(RESULTS.glob("s*_h[12]00.json")):
        table = json.loads(path.read_text(encoding="utf-8"))
        if path.with_name(path.stem + ROUNDS).exists():
            continue
        for listed in table["rows"]:
            problem = listed_problem({"dtype": table["dtype"], **listed})
            config = as_today(listed["config"], problem, "", listed["family"])
            if config is None:
                continue
            names = ("time_us", "ratio", "ratio_low", "ratio_high")
            kernel = TimedKernel(config, *(_rounded(listed[name]) for name in names))
            baseline_us = listed.get("baseline_us") or listed["cublas_us"]
            source = f"benchmarks/results/{path.name}"
            baseline = listed.get("baseline", "cuBLAS")
            yield _winner(listed, table, source, problem, [kernel], baseline, baseline_us)


def _winner(  # noqa: PLR0913, PLR0917  # as it is known
    listed: dict[str, Any],
    table: dict[str, Any],
    source: str,
    problem: Problem,
    kernels: list[TimedKernel],
    baseline: str,
    baseline_us: float,
) -> Winner | None:
    gpu, _, driver = table["gpu"].partition(", ")
    versions = dict(one.split() for one in table["versions"].split(", "))
    legal = [one for one in kernels if is_legal(one.config, problem, gpu)]
    if not legal or legal[0] is not kernels[0]:
        return None
    settings = table.get("settings", {})
    sha256 = listed.get("kernel_sha256", "")
    return Winner(
        gpu=gpu,
        problem=problem,
        kernels=tuple(legal),
        kernel_sha256=sha256,
        text=text_of(legal[0].config, problem, sha256),
        baseline=baseline,
        baseline_us=_rounded(baseline_us),
        driver=driver,
        compiler=f"nvrtc {versions['nvrtc']}",
        cublas=versions["cuBLAS"],
        date=datetime.fromisoformat(listed.get("date", table["date"])).date().isoformat(),
        commit=listed.get("commit", table["commit"]),
        source=source,
        command=table["command"],
        rounds=listed.get("rounds", 0),
        l2=CacheState(listed.get("l2", "warm")),
        max_error=str(settings.get("max_error") or ""),
        error=_known(listed, "error"),
        baseline_error=_known(listed, "baseline_error"),
    )


def text_of(config: Config, problem: Problem, sha256: str) -> TimedText:
    """Whether the text of that hash is what the config's family emits today."""
    if not sha256:
        return TimedText.UNKNOWN
    is_this = render(_families()[config.family], config, problem).sha256 == sha256
    return TimedText.THIS if is_this else TimedText.EARLIER


def is_legal(config: Config, problem: Problem, gpu: str) -> bool:
    """Whether the config's family has its values, and no rule forbids it there."""
    family = _families()[config.family]
    with suppress(UsageError):
        declared = family.declared(config)
        return not broken_constraints(family, declared, problem, find_device(gpu))
    return False


def as_today(
    values: dict[str, Any], problem: Problem, sha256: str, family: str = ""
) -> Config | None:
    """The config of the family that emits that text; else of the one, ``family`` if given, that
    knows all the parameters. None where there is none, or where there are several.
    """
    config = emitted(values, problem, sha256) if sha256 else None
    if config is not None:
        return config
    found = []
    for name in [family] if family else _families():
        with suppress(AutogemmError):
            found.append(_families()[name].completed(Config.of(name, values)))
    return found[0] if len(found) == 1 else None


@cache
def _families() -> dict[str, Family]:
    return {family.name: family for family in default_families(emulation=True)}


def _known(listed: dict[str, Any], name: str) -> float | None:
    value = listed.get(name)
    return None if value is None or not math.isfinite(value) else _rounded(value)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    main()
