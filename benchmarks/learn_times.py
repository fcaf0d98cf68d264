"""Learns what expected times miss, from trials that are committed, for the choice of kernels.

    python benchmarks/learn_times.py                     # writes db/catalogue/learned_times.json.gz
    python benchmarks/learn_times.py --judge             # what is lost at sizes left out
    python benchmarks/learn_times.py --draw FOLDER --seed 101
    python benchmarks/learn_times.py --add DATABASE --date DATE --commit COMMIT --command TEXT

Trials are those of benchmarks/results/trials_h200.json.gz: a config, a problem, and the time that a
search measured. --draw writes problems to search, a file for each type, for `autogemm tune
--problems`: shapes as `suite.py --unseen` draws them, in layouts nn, nt, tn, tt in turns. --add
appends the trials of such a search.

Each family has trees of its own, which predict the binary logarithm of measured over expected time,
less that of the problem's fastest kernels: only the order of kernels at a problem counts. Kernels
near the fastest weigh most; those more than twenty times as slow are left out, as most of their
times are those of a disturbed launch. Each size is left out once for --judge, in all layouts and
types, together with a sixth of the others.
"""

import gzip
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from sklearn.ensemble import GradientBoostingRegressor
from suite_shapes import unseen_shapes

from autogemm.catalogue.gpus import find_device
from autogemm.catalogue.learned import FILE_NAME, LEARNED, LearnedTimes, Tree
from autogemm.dispatch import NearestLegal, Predictor, tuned_sizes
from autogemm.model.called import CalledGemm, Recorded, called_text
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.space import EXPECTED_TIME, Family, broken_constraints, derived_columns, load_family
from autogemm.store import shipped_rows
from autogemm.support.files import write_atomically
from autogemm.support.resources import data_folder

RESULTS = Path(__file__).parent / "results"
TRIALS = RESULTS / "trials_h200.json.gz"
JUDGED = RESULTS / "learned_times.txt"
PATH = data_folder("db/catalogue") / FILE_NAME
DEVICE = find_device("h200")
# Families with so many trials that trees lose less than what is expected, at sizes left out.
FAMILIES = ("gemm_wgmma", "gemm_skinny")
DTYPES = ("bf16", "f16", "tf32")
# Times beyond this, over the fastest, are left out; those beyond the second count as that.
DISTURBED = 20.0
HOPELESS = 4.0
FOLDS = 6
DIGITS = 6

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """A config that ran correctly at a problem, and its time in us."""

    problem: Problem
    config: Config
    time_us: float

    @property
    def kind(self) -> tuple[Problem, str]:
        """The problem and the family."""
        return self.problem, self.config.family

    @property
    def size(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.problem.m, self.problem.n, self.problem.k


@dataclass(frozen=True)
class Table:
    """Trials of a family as columns. Targets are binary logarithms of measured over expected times,
    less what the fastest kernels of the same problem and family have.
    """

    family: Family
    trials: list[Trial]
    columns: dict[str, npt.NDArray[Any]]
    over_best: Floats
    targets: Floats

    def features(self) -> tuple[list[str], npt.NDArray[np.float32]]:
        """Names and columns of what differs among the trials."""
        found: dict[str, npt.NDArray[Any]] = {}
        for name, column in self.columns.items():
            if column.dtype.kind in "biu":
                found[name] = column
            else:
                found |= {f"{name}={word}": column == word for word in sorted(set(column.tolist()))}
        varied = {name: one for name, one in found.items() if (one != one[0]).any()}
        return list(varied), np.array(list(varied.values()), dtype=np.float32).T


def by(keys: Iterable[Any]) -> dict[Any, list[int]]:
    """The positions of each key."""
    found: dict[Any, list[int]] = {}
    for position, key in enumerate(keys):
        found.setdefault(key, []).append(position)
    return found


def tables_of(trials: Sequence[Trial], names: Sequence[str] = FAMILIES) -> list[Table]:
    """The trials of each family that are legal today and were not disturbed."""
    families = {name: load_family(name) for name in names}
    known = [
        Trial(one.problem, families[one.config.family].completed(one.config), one.time_us)
        for one in trials
        if one.config.family in families
    ]
    fastest: dict[tuple[Problem, str], float] = {}
    for one in known:
        fastest[one.kind] = min(one.time_us, fastest.get(one.kind, one.time_us))
    kept = [
        one
        for one in known
        if one.time_us < DISTURBED * fastest[one.kind]
        and not broken_constraints(families[one.config.family], one.config, one.problem, DEVICE)
    ]
    over_best = np.array([one.time_us / fastest[one.kind] for one in kept])
    missed = np.log2(np.minimum(over_best, HOPELESS))
    columns: dict[str, dict[str, npt.NDArray[Any]]] = {}
    of_family = by(one.config.family for one in kept)
    for name, rows in of_family.items():
        pairs = [(kept[row].config, kept[row].problem) for row in rows]
        given = derived_columns(families[name], pairs, DEVICE)
        columns[name] = {key: np.broadcast_to(value, len(rows)) for key, value in given.items()}
        missed[rows] -= np.log2(columns[name][EXPECTED_TIME].astype(np.float64))
    targets = missed.copy()
    for rows in by(one.kind for one in kept).values():
        targets[rows] -= np.average(missed[rows], weights=over_best[rows] ** -4.0)
    return [
        Table(
            families[name],
            [kept[row] for row in rows],
            columns[name],
            over_best[rows],
            targets[rows],
        )
        for name, rows in of_family.items()
    ]


def learned(table: Table, rows: Sequence[int] | npt.NDArray[np.intp]) -> LearnedTimes:
    """Fit trees to these rows."""
    names, features = table.features()
    model = GradientBoostingRegressor(
        n_estimators=300,
        max_leaf_nodes=15,
        max_depth=6,
        learning_rate=0.06,
        subsample=0.5,
        max_features=0.3,
        min_samples_leaf=8,
        random_state=1,
    )
    model.fit(features[rows], table.targets[rows], sample_weight=table.over_best[rows] ** -2.0)
    trials = [table.trials[row] for row in rows]
    return LearnedTimes(
        family=table.family.name,
        arch=DEVICE.arch,
        dtypes=tuple(sorted({trial.problem.dtype.label for trial in trials})),
        extents=extents_of([trial.size for trial in trials]),
        gpu=DEVICE.name,
        trials=len(trials),
        problems=len({trial.problem for trial in trials}),
        expressions_sha256=table.family.expressions_sha256,
        features=tuple(names),
        trees=tuple(tree_of(one.tree_, model.learning_rate) for (one,) in model.estimators_),
    )


def extents_of(sizes: Sequence[tuple[int, int, int]]) -> Any:
    """The powers of two between which M, N and K lie."""
    return tuple(
        (1 << (min(column).bit_length() - 1), 1 << (max(column) - 1).bit_length())
        for column in zip(*sizes, strict=True)
    )


def tree_of(fitted: Any, rate: float) -> Tree:
    """A tree of scikit-learn in our form."""
    is_leaf = fitted.children_left < 0
    return Tree(
        feature=tuple(np.where(is_leaf, -1, fitted.feature).tolist()),
        threshold=tuple(np.where(is_leaf, 0.0, fitted.threshold).tolist()),
        below=tuple(np.where(is_leaf, 0, fitted.children_left).tolist()),
        above=tuple(np.where(is_leaf, 0, fitted.children_right).tolist()),
        value=tuple(
            float(f"{one:.{DIGITS}g}")
            for one in np.where(is_leaf, rate * fitted.value[:, 0, 0], 0.0).tolist()
        ),
    )


def judged(tables: Sequence[Table]) -> str:
    """Losses at sizes that were left out, among the kernels that were tried there."""
    sizes = sorted({trial.size for table in tables for trial in table.trials})
    order = np.random.default_rng(0).permutation(len(sizes))
    fold_of = {sizes[place]: number % FOLDS for number, place in enumerate(order)}
    nearest_legal = NearestLegal([table.family for table in tables], DEVICE)
    shipped = shipped_rows([table.family.name for table in tables], DEVICE.arch)
    near = tuned_sizes(shipped, DEVICE)
    losses: dict[tuple[str, str], dict[str, list[float]]] = {}
    for fold in range(FOLDS):
        models = {}
        for table in tables:
            kept = [row for row, one in enumerate(table.trials) if fold_of[one.size] != fold]
            models[table.family.name] = learned(table, kept)
        others = [one for one in near if fold_of.get(one.size, -1) != fold]
        ways = {
            "expected": Predictor((), nearest_legal),
            "corrected": Predictor(others, nearest_legal),
            "learned": Predictor(others, nearest_legal, models),
        }
        for problem, times in tried(tables).items():
            if fold_of[problem.m, problem.n, problem.k] != fold:
                continue
            families = sorted({config.family for config in times})
            for kind in (*families, *(["all families"] if len(families) > 1 else [])):
                own = {one: us for one, us in times.items() if kind in (one.family, "all families")}
                of_kind = losses.setdefault((kind, problem.dtype.label), {})
                for name, way in ways.items():
                    chosen = way.ranked(problem, own)[0]
                    of_kind.setdefault(name, []).append(own[chosen] / min(own.values()) - 1.0)
    return shown(tables, losses)


def tried(tables: Sequence[Table]) -> dict[Problem, dict[Config, float]]:
    """What was tried at each problem, and its time in us."""
    found: dict[Problem, dict[Config, float]] = {}
    for table in tables:
        for trial in table.trials:
            found.setdefault(trial.problem, {})[trial.config] = trial.time_us
    return found


def shown(tables: Sequence[Table], losses: dict[tuple[str, str], dict[str, list[float]]]) -> str:
    """The table of losses."""
    lines = [f"{DEVICE.name}: trials of {TRIALS.name}:"]
    for table in tables:
        problems = len({trial.problem for trial in table.trials})
        lines.append(f"  {table.family.name}: {len(table.trials)} trials of {problems} problems")
    lines += [
        "loss: time of the kernel that is chosen among those that were tried at a problem, over",
        "the fastest of them, less 1, in per cent; its size was left out of what was learned",
        "expected: the least expected time; corrected: by a Gaussian process from what was missed",
        "at near sizes of the catalogue; learned: by trees, as kernels are chosen",
        "",
        f"{'':<22}{'problems':>9}{'mean':>7}{'median':>8}{'worst':>7}{'above 15 %':>12}",
    ]
    for (family, dtype), of_kind in sorted(losses.items()):
        lines.append(f"{family}, {dtype}")
        for name, found in of_kind.items():
            per_cent = 100.0 * np.array(found)
            lines.append(
                f"  {name:<20}{len(found):>9}{per_cent.mean():7.1f}{np.median(per_cent):8.1f}"
                f"{per_cent.max():7.1f}{(per_cent > 15.0).sum():>12}"
            )
    return "\n".join([*lines, ""])


def read_trials(path: Path = TRIALS) -> list[Trial]:
    """The trials of a file, behind its head."""
    with gzip.open(path, "rt") as file:
        _, *lines = map(json.loads, file)
    problems: dict[tuple[Any, ...], Problem] = {}
    found = []
    for source, *key, family, values, time_us in lines:
        del source
        m, n, k, layout, dtype = key
        if tuple(key) not in problems:
            problems[tuple(key)] = Problem(m, n, k, Layout(layout), DType.parse(dtype))
        found.append(Trial(problems[tuple(key)], Config.of(family, values), time_us))
    return found


def rows_of(database: Path) -> list[list[Any]]:
    """Lines of the trials of a database that ran correctly: plain products of FAMILIES' types."""
    asked = (
        "SELECT p.m, p.n, p.k, p.layout, p.dtype, t.family, t.config, t.time_us FROM run_trials t "
        "JOIN runs r ON r.id = t.run_id JOIN problems p ON p.id = r.problem_id "
        "WHERE t.time_us IS NOT NULL ORDER BY t.id"
    )
    with closing(sqlite3.connect(database)) as connection:
        return [[*row[:6], json.loads(row[6]), row[7]] for row in connection.execute(asked)]


def add(path: Path, source: dict[str, str]) -> Counter[str]:
    """Append the trials of a database to the file; how many of each family."""
    head: dict[str, Any] = {"gpu": DEVICE.name, "sources": []}
    lines: list[list[Any]] = []
    if TRIALS.exists():
        with gzip.open(TRIALS, "rt") as file:
            head, *lines = map(json.loads, file)
    number = len(head["sources"])
    head["sources"].append(source)
    new = [
        [number, *row[:-1], float(f"{row[-1]:.{DIGITS}g}")]
        for row in rows_of(path)
        if row[4] in (*DTYPES, "f32")
    ]
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in (head, *lines, *new))
    write_atomically(TRIALS, gzip.compress(text.encode() + b"\n", mtime=0))
    return Counter(row[6] for row in new)


def draw(folder: Path, seed: int, count: int) -> None:
    """Write the problems of each type, other shapes for each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, dtype in enumerate((DType.F32, DType.BF16, DType.TF32)):
        shapes = zip(unseen_shapes(count, seed + 1000 * number), cycle(Layout), strict=False)
        problems = [Problem.of_size(shape, layout, dtype) for shape, layout in shapes]
        # The longest time goes first: in the order in which they were drawn.
        called = (
            CalledGemm(problem, problem.label, 1, "mm", 1, float(count - place))
            for place, problem in enumerate(problems)
        )
        recorded = Recorded("cuda", DEVICE.name, float(count), tuple(called))
        (folder / f"{dtype.label}.jsonl").write_text(called_text(recorded))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--judge", is_flag=True, help="Show what is lost at sizes that are left out.")
@click.option("--draw", "drawn", type=click.Path(path_type=Path), help="Write problems there.")
@click.option("--seed", default=101, help="Of what is drawn.", show_default=True)
@click.option("--count", default=90, help="Problems of each type.", show_default=True)
@click.option("--add", "added", type=click.Path(exists=True, path_type=Path), help="A database.")
@click.option("--date", default="", help="When those trials were measured.")
@click.option("--commit", default="", help="The commit that was measured.")
@click.option("--command", default="", help="The command that made them.")
@click.option("--driver", default="", help="The GPU's driver then.")
def main(
    drawn: Path | None, seed: int, count: int, judge: bool, added: Path | None, **source: str
) -> None:
    """Learn what expected times miss."""
    if drawn is not None:
        draw(drawn, seed, count)
        return
    if added is not None:
        for family, trials in sorted(add(added, source).items()):
            click.echo(f"{family}: {trials} trials")
        return
    found = read_trials()
    tables = tables_of(found)
    if judge:
        text = judged(tables)
        write_atomically(JUDGED, text.encode())
        click.echo(text)
        return
    models = tuple(learned(table, range(len(table.trials))) for table in tables)
    packed = gzip.compress(LEARNED.dump_json(models), mtime=0)
    write_atomically(PATH, packed)
    for one in models:
        click.echo(f"{one.family}: {one.trials} trials of {one.problems} problems, {one.extents}")
    click.echo(f"{PATH}: {len(packed)} bytes")


if __name__ == "__main__":
    main()
