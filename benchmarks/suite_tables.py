"""The results of a suite: a row for each shape, every sample of every round, and their files."""

import gzip
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from suite_shapes import problem_of, shape_of
from suite_shown import Row, table

from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Finals
from autogemm.space import load_family
from autogemm.support.errors import AutogemmError
from autogemm.support.files import write_atomically
from autogemm.tuning import TuneResult

ROUNDS_FORMAT = "autogemm-rounds"
RoundsOfRow = dict[str, Any]


@dataclass
class Table:
    """The rows of one layout, as far as they are there, and their raw rounds."""

    name: str
    head: dict[str, Any]
    problems: list[Problem]
    rows: dict[str, Row] = field(default_factory=dict)
    rounds: dict[str, RoundsOfRow] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[Problem]:
        """The problems without a row."""
        return [problem for problem in self.problems if shape_of(problem) not in self.rows]

    @property
    def not_faster(self) -> list[Problem]:
        """The problems whose row ties or loses by either estimator, and was not tuned longer."""
        rows = [(one, self.rows.get(shape_of(one))) for one in self.problems]
        return [one for one, row in rows if row and not is_faster(row) and "again_s" not in row]

    def take(self, folder: Path) -> None:
        """Take the rows that an earlier call left there, if they are rows of this table."""
        path = folder / f"{self.name}.json"
        if not path.exists():
            return
        before = json.loads(path.read_text())
        if before.get("settings") != self.head["settings"]:
            return
        packed = folder / f"{self.name}.rounds.json.gz"
        rounds = unpacked(packed) if packed.exists() else {}
        for row in before["rows"]:
            shape = row["shape"]
            if shape in rounds and shape not in self.rows and is_emitted_today(row):
                self.rows[shape], self.rounds[shape] = row, rounds[shape]

    def content(self) -> dict[str, Any]:
        """The table as it is written, rows in the order of the problems."""
        order = [shape_of(problem) for problem in self.problems]
        # Those of another call, which asked for other shapes, stay behind them.
        order += [shape for shape in self.rows if shape not in order]
        rows = [self.rows[shape] for shape in order if shape in self.rows]
        left = [shape for shape in order if shape not in self.rows]
        return self.head | summary(rows) | {
            "not_measured": left,
            "failed": self.failed,
            "rows": rows,
        }  # fmt: skip

    def write(self, folder: Path) -> None:
        """Write JSON, text and rounds, each whole or not at all."""
        content = self.content()
        # Without a time of day in it, the same rounds give the same file.
        all_rounds = {"format": ROUNDS_FORMAT, "problems": list(self.rounds.values())}
        packed = gzip.compress(json.dumps(all_rounds).encode(), mtime=0)
        write_atomically(folder / f"{self.name}.rounds.json.gz", packed)
        text = json.dumps(content, indent=1) + "\n"
        write_atomically(folder / f"{self.name}.json", text.encode())
        write_atomically(folder / f"{self.name}.txt", table(content).encode())


def unpacked(path: Path) -> dict[str, RoundsOfRow]:
    """The rounds in a file, by the shape that they are of."""
    problems = json.loads(gzip.decompress(path.read_bytes()))["problems"]
    return {one["size"]: one for one in problems}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Geometric means by both estimators, and the shapes that are not faster."""
    if not rows:
        return {"count": 0}
    return {
        "count": len(rows),
        "geometric_mean": geometric_mean([row["ratio"] for row in rows]),
        "geometric_mean_of_medians": geometric_mean([row["ratio_of_medians"] for row in rows]),
        "below_one": [
            row["shape"] for row in rows if min(row["ratio"], row["ratio_of_medians"]) < 1
        ],
        "ties": [row["shape"] for row in rows if row["against_baseline"] == "tied"],
        "again": [row["shape"] for row in rows if "again_s" in row],
    }


def is_faster(row: Row) -> bool:
    """Whether a row's winner is faster than the baseline by both estimators, and no tie."""
    ratios = (row["ratio"], row["ratio_of_medians"])
    return all(one >= 1 for one in ratios) and bool(row["against_baseline"] == "faster")


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def is_emitted_today(row: Row) -> bool:
    """Whether the text that a row is of is what its family emits today."""
    try:
        return emitted_sha256(row) == row.get("kernel_sha256")
    except AutogemmError:
        return False


def emitted_sha256(row: Row) -> str:
    """The sha256 of the text that a row's config gives today. Raises AutogemmError if none."""
    family = load_family(row["family"])
    text = row.get("epilogue", "none")
    problem = problem_of(
        row["shape"],
        Layout(row["layout"]),
        DType.parse(row["dtype"]),
        Epilogue.parse("" if text == "none" else text),
    )
    config = Config.of(family.name, family.current(row["config"]))
    return render(family, config, problem).sha256


def row_of(result: TuneResult, finals: Finals, seconds: float) -> Row:
    """A row of the table, from finals."""
    problem, winner, baseline = result.problem, finals.winner, finals.baseline
    assert winner.config is not None
    ends = winner.interval or (None, None)
    low, high = (end if end is not None else winner.ratio for end in ends)
    return {
        "shape": shape_of(problem),
        "layout": problem.layout.value,
        "dtype": problem.dtype.label,
        "epilogue": problem.epilogue.text or "none",
        "ratio": winner.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "ratio_of_medians": finals.ratio_of_medians(winner),
        "against_baseline": str(finals.against_baseline),
        "baseline": baseline.name,
        "error": winner.verification.error if winner.verification else None,
        "baseline_error": baseline.verification.error if baseline.verification else None,
        "l2": result_l2(finals, result),
        "family": winner.config.family,
        "config": winner.config.as_dict(),
        "kernel_sha256": winner.kernel_sha256,
        "time_us": winner.time_us,
        "tflops": problem.tflops(winner.time_us),
        "baseline_us": baseline.time_us,
        "baseline_tflops": problem.tflops(baseline.time_us),
        "energy_mj": winner.energy_mj,
        "baseline_energy_mj": baseline.energy_mj,
        **sustained_of(finals),
        **wrong_of(result),
        "rounds": finals.rounds,
        "num_trials": result.num_trials,
        "seconds": seconds,
        "search_s": result.search_s,
        "finals_s": result.finals_s,
    }


def sustained_of(finals: Finals) -> dict[str, Any]:
    """The fields of winner and baseline each alone for seconds, none where that was not asked."""
    sustained = finals.sustained
    return asdict(sustained) | {"sustained_ratio": sustained.sustained_ratio} if sustained else {}


def wrong_of(result: TuneResult) -> dict[str, list[str]]:
    """The configs that gave wrong results, and how; no field where none did, as should be."""
    named = [f"{one.config}: {one.reason}" for one in result.wrong]
    return {"wrong": named} if named else {}


def result_l2(finals: Finals, result: TuneResult) -> str:
    """The state of L2 before each launch."""
    measurement = result.best.measurement if result.best is not None else None
    return measurement.l2.value if measurement is not None else CacheState.WARM.value


def rounds_of(result: TuneResult, finals: Finals) -> RoundsOfRow:
    """Every sample of every contestant; sample i of all of them is of the same round."""
    contestants = [contestant("baseline", finals.baseline)]
    contestants += [contestant("call", one) for one in finals.calls if one.samples_us]
    contestants += [contestant("kernel", one) for one in finals.entries]
    return {
        "size": shape_of(result.problem),
        "layout": result.problem.layout.value,
        "dtype": result.problem.dtype.label,
        "gpu": result.device_name,
        "rounds": finals.rounds,
        "method": finals.method,
        "launches_per_sample": finals.launches_per_sample,
        "throttled_rounds": finals.throttled_rounds,
        "telemetry": asdict(finals.telemetry),
        "baseline": finals.baseline.name,
        "contestants": contestants,
    }


def contestant(role: str, one: Any) -> dict[str, Any]:
    """One of the contestants; ``one`` is an entry of the finals, or another call of the library."""
    config = getattr(one, "config", None)
    return {
        "name": one.name,
        "role": role,
        "config": config.as_dict() if config is not None else None,
        "kernel_sha256": getattr(one, "kernel_sha256", ""),
        "samples_us": [float(f"{sample:.7g}") for sample in one.samples_us],
        "samples_mj": list(getattr(one, "samples_mj", ())),
    }


def gpu_label(name: str) -> str:
    """The GPU's name as files have it: h200 of NVIDIA H200."""
    found = re.search(r"\b[A-Z]+\d+\w*\b", name)
    return found[0].lower() if found else "gpu"
