"""Plant bugs in modules and say which of them no test sees: `make mutate MODULES=tuning SAMPLE=60`.

Each mutant is one change by an operator of mutmut; `[tool.autogemm.mutate]` of pyproject.toml names
the tests of each module. All happens in copies of the tree. Verdicts are kept in `.mutants/`, so
that the same command goes on where it was stopped, and tries survivors again once tests changed.
`benchmarks/equivalent_mutants.toml` lists those that change nothing, with the reason.
"""

import argparse
import fnmatch
import json
import os
import queue
import re
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import mutate_trying as trying
from mutate_planting import Chosen, Mutant, Site, chosen, sampled, sites

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".mutants"
CHOSEN = ROOT / "benchmarks" / "chosen_mutants.toml"
JUDGED = ROOT / "benchmarks" / "equivalent_mutants.toml"
SEED = 18

Given = TypeVar("Given")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Task:
    """A mutant, its tests with their seconds, and the names under which its verdict is kept."""

    mutant: Mutant
    tests: dict[str, float]
    killed_as: str
    survived_as: str


class Workers:
    """Threads with a tree each, in which children try mutants."""

    def __init__(self, number: int, folder: Path) -> None:
        self._trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for place in range(number):
            self._trees.put(trying.copied_tree(ROOT, folder / str(place)))
        self._threads = ThreadPoolExecutor(number)

    def each(
        self, act: Callable[[Path, Given], Result], given: Iterable[Given]
    ) -> Iterator[Result]:
        """Results of an act in one of the trees, as they come."""

        def in_a_tree(one: Given) -> Result:
            tree = self._trees.get()
            try:
                return act(tree, one)
            finally:
                self._trees.put(tree)

        for future in as_completed([self._threads.submit(in_a_tree, one) for one in given]):
            yield future.result()


def modules_of(wanted: list[str]) -> list[str]:
    """Modules by name, room or pattern: `tuning/finals`, `tuning`, `store/queries/*`."""
    folder = ROOT / "autogemm"
    known = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.py"))
    known = [name for name in known if not name.endswith(("__init__", "__main__"))]
    found: list[str] = []
    for one in wanted:
        name = one.removeprefix("autogemm/").removesuffix(".py").rstrip("/")
        meant = [m for m in known if fnmatch.fnmatch(m, name) or m.startswith(f"{name}/")]
        if not meant:
            raise SystemExit(f"there is no module or room autogemm/{name}")
        found += [module for module in meant if module not in found]
    return found


def fitting(module: str, patterns: dict[str, list[str]]) -> list[str]:
    """Test files of all patterns that fit, each once."""
    found = (names for pattern, names in patterns.items() if fnmatch.fnmatch(module, pattern))
    return list(dict.fromkeys(f"tests/{name}.py" for names in found for name in names))


def tests_of(module: str, settings: dict[str, list[str]]) -> list[str]:
    """The test files of a module: those of all patterns that fit, in the order written."""
    named = fitting(module, settings)
    if not named:
        known = ", ".join(settings)
        raise SystemExit(f"no tests are named for {module}: [tool.autogemm.mutate] knows {known}")
    return named


def selected(measured: list[trying.Measured], mutant: Mutant, most_s: float) -> dict[str, float]:
    """The tests that run the mutant's line; all where none is seen to, as in other programs.

    The quickest, as many as take ``most_s`` together.
    """
    known = {name: seconds for one in measured for name, seconds in one.seconds.items()}
    running = {name for one in measured for name in one.running(mutant)}
    # Tests that fail without a mutant are not known.
    chosen = {name: known[name] for name in running & known.keys()} or known
    kept: dict[str, float] = {}
    for name in sorted(chosen, key=lambda name: chosen[name]):
        if kept and sum(kept.values()) + chosen[name] > most_s:
            break
        kept[name] = chosen[name]
    return kept


def planned(arguments: argparse.Namespace, workers: Workers) -> Iterator[Task]:
    """The sample with its tests; a file that was not seen under coverage is run once."""
    with (ROOT / "pyproject.toml").open("rb") as project:
        settings = tomllib.load(project)["tool"]["autogemm"]["mutate"]
    most_s = settings.pop("most_seconds")
    modules = modules_of(arguments.modules)
    files = {module: tests_of(module, settings) for module in modules}
    places: list[Site] = [site for module in modules for site in sites(ROOT, module)]
    mutants = list(sampled(places, arguments.sample, arguments.seed))
    print(f"{len(mutants)} of {len(places)} places in {len(modules)} modules", flush=True)
    needed = dict.fromkeys(name for mutant in mutants for name in files[mutant.module])
    digests = digests_of(needed)

    def measure(tree: Path, name: str) -> tuple[str, trying.Measured]:
        return name, trying.measured(tree, name, KEPT, digests[name])

    measured = dict(workers.each(measure, needed))
    for mutant in mutants:
        names = files[mutant.module]
        tests = selected([measured[name] for name in names], mutant, most_s)
        before = (ROOT / "autogemm" / f"{mutant.module}.py").read_text()
        killed_as = trying.digest_of(before, mutant.source)
        survived_as = trying.digest_of(killed_as, *(digests[name] for name in names))
        yield Task(mutant, tests, killed_as, survived_as)


def digests_of(tests: Iterable[str]) -> dict[str, str]:
    """A name for what each test file is made of: the package, itself, what it imports of tests."""
    package = sorted((ROOT / "autogemm").rglob("*.py"))
    common = trying.digest_of(*(path.read_bytes() for path in package))
    return {name: trying.digest_of(common, *_texts(ROOT / name, set())) for name in tests}


def _texts(path: Path, seen: set[Path]) -> Iterator[bytes]:
    """A test file and the modules beside it that it imports, and those that these do."""
    if path in seen or not path.exists():
        return
    seen.add(path)
    text = path.read_text()
    yield text.encode()
    for name in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE):
        for folder in (path.parent, ROOT / "tests"):
            yield from _texts(folder / f"{name}.py", seen)


def tried(tree: Path, task: Task) -> tuple[Task, bool]:
    """Whether the tests see the mutant."""
    return task, trying.is_killed(tree, task.mutant, task.tests)


def judged() -> dict[tuple[str, str, str], str]:
    """Mutants that change nothing that a user could see, with the reason."""
    if not JUDGED.exists():
        return {}
    listed = tomllib.loads(JUDGED.read_text()).get("mutant", [])
    return {(one["place"], one["old"], one["new"]): one["why"] for one in listed}


def known_verdicts() -> set[str]:
    """Names of the verdicts that are kept."""
    path = KEPT / "verdicts.txt"
    return set(path.read_text().split()) if path.exists() else set()


def keep(verdict: str) -> None:
    with (KEPT / "verdicts.txt").open("a") as file:
        file.write(f"{verdict}\n")


def verdicts(tasks: list[Task], workers: Workers) -> Iterator[tuple[Task, bool]]:
    """Each mutant and whether it was killed: the known ones first."""
    known = known_verdicts()
    left = []
    for task in tasks:
        if task.killed_as in known:
            yield task, True
        elif task.survived_as in known:
            yield task, False
        else:
            left.append(task)
    began = time.monotonic()
    for count, (task, killed) in enumerate(workers.each(tried, left), 1):
        keep(task.killed_as if killed else task.survived_as)
        if count % 10 == 0:
            seconds = time.monotonic() - began
            print(f"{count} of {len(left)} tried, {seconds:.0f} s", file=sys.stderr)
        yield task, killed


def try_chosen(workers: Workers, text: str) -> int:
    """Print which of the bugs planted by hand no test sees; return how many these are.

    Each test that is named beside one passes without it: `make test` says so.
    """
    bugs = [bug for bug in chosen(CHOSEN) if text in f"{bug.what} ({bug.file})"]

    def said(tree: Path, bug: Chosen) -> tuple[Chosen, str]:
        try:
            return bug, "killed" if trying.is_seen(tree, bug) else "SURVIVED"
        except ValueError as error:
            return bug, f"GONE ({error})"

    missed = 0
    for bug, verdict in workers.each(said, bugs):
        missed += verdict != "killed"
        print(f"{verdict:9}{bug.what} ({bug.file})", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} killed")
    return missed


def report(results: list[tuple[Task, bool]], reasons: dict[tuple[str, str, str], str]) -> int:
    """Print the survivors and a row for each module; return how many are not judged."""
    rows: dict[str, Counter[str]] = {}
    open_ones = []
    for task, killed in results:
        row = rows.setdefault(task.mutant.module, Counter())
        equivalent = not killed and task.mutant.name in reasons
        row["killed" if killed else "equivalent" if equivalent else "survived"] += 1
        if not killed and not equivalent:
            open_ones.append(task)
    for task in sorted(open_ones, key=lambda task: (task.mutant.module, task.mutant.first_line)):
        print(f"{task.mutant}\n  {len(task.tests)} tests")
    print(f"{'module':44}{'mutants':>8}{'killed':>8}{'equivalent':>12}{'score':>8}")
    total = sum(rows.values(), Counter[str]())
    for module, row in [*sorted(rows.items()), ("all", total)]:
        counted = row["killed"] + row["survived"]
        score = f"{100 * row['killed'] / counted:.0f} %" if counted else "-"
        line = f"{row.total():8}{row['killed']:8}{row['equivalent']:12}{score:>8}"
        print(f"{module:44}{line}")
    return len(open_ones)


def main() -> int:
    """Exit code 1 where a bug survived that is not listed as changing nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="tuning, tuning/finals, store/queries/*")
    parser.add_argument(
        "--chosen", nargs="?", const="", help=f"those of {CHOSEN.name}, with a text in their line"
    )
    parser.add_argument("--sample", type=int, help="so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=SEED, help="of the draw (%(default)s)")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path, help="write survivors that are not judged here")
    arguments = parser.parse_args()
    if not arguments.modules and arguments.chosen is None:
        parser.error("name modules or rooms, for example tuning/task/accuracy")
    KEPT.mkdir(exist_ok=True)
    trying.preload()
    with tempfile.TemporaryDirectory(prefix="autogemm-mutate-") as folder:
        workers = Workers(arguments.workers, Path(folder))
        if arguments.chosen is not None:
            return 1 if try_chosen(workers, arguments.chosen) else 0
        tasks = list(planned(arguments, workers))
        results = list(verdicts(tasks, workers))
    reasons = judged()
    if arguments.json:
        listed = [
            dict(zip(("place", "old", "new"), task.mutant.name, strict=True))
            for task, killed in results
            if not killed and task.mutant.name not in reasons
        ]
        arguments.json.write_text(json.dumps(listed, indent=1))
    return 1 if report(results, reasons) else 0


if __name__ == "__main__":
    sys.exit(main())
