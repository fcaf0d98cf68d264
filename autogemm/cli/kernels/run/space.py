"""``autogemm space``: the parameters of a family, and how many configs are legal."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autogemm.cli.files import write_output
from autogemm.cli.lookup import device_facts
from autogemm.cli.options import ProblemOptions
from autogemm.cli.output import Form, print_rows
from autogemm.cli.prose import say
from autogemm.cli.table import Row, print_table
from autogemm.formats import is_t1, read_t1, t1_text, yaml_text
from autogemm.space import Space, build_space, load_family, parse_fix
from autogemm.support.amounts import short_count
from autogemm.support.errors import UsageError

COLUMNS = ("kind", "name", "values", "doc", "configs")


@dataclass(frozen=True, slots=True)
class SpaceCommand:
    """One call of the command."""

    family: str
    problem: ProblemOptions
    gpu: str
    fix: tuple[str, ...]
    file_format: str | None
    output: str
    force: bool
    form: Form


def run(command: SpaceCommand) -> None:
    """Build the space, and print it or write it to a file."""
    problem = command.problem.value
    path = Path(command.family)
    foreign = read_t1(path) if is_t1(path) else None
    family = foreign.family if foreign is not None else load_family(command.family)
    if command.file_format == "yaml":
        if foreign is None:
            raise UsageError(f"{command.family} already has a YAML file: {family.yaml_path}")
        content = yaml_text(foreign).encode()
        write_output(command.output, content, force=command.force, ours="# From a T1 file.")
        return
    chosen = parse_fix(family, command.fix)
    device = device_facts(command.gpu)
    start = time.perf_counter()
    built = build_space(family, problem, device, chosen)
    seconds = time.perf_counter() - start
    if command.file_format == "t1":
        text, left_out = t1_text(built)
        ours = '{\n  "General"'
        write_output(command.output, text.encode(), force=command.force, ours=ours)
        _print_left_out(left_out)
        return
    left_out = foreign.left_out if foreign is not None else ()
    if command.form is not Form.TABLE:
        rows = _rows(built)
        rows += [{"kind": "left_out", "name": line} for line in left_out]
        print_rows(rows, COLUMNS, command.form)
        return
    say(f"{family.name}: {family.summary}")
    say(f"for {problem.label} on {device.name}\n")
    heads = {"name": "parameter", "values": "values", "doc": "meaning"}
    _print_renamed(_parameter_rows(built), heads)
    say()
    heads = {"name": "constraint", "doc": "because", "configs": "removed"}
    _print_renamed(_constraint_rows(built), heads)
    say(
        f"\n{short_count(len(built))} legal of {short_count(built.raw_count)} configs, built in "
        f"{seconds:.2f} s; {len(built.seeds)} seeds"
    )
    _print_left_out(left_out)


def _print_left_out(lines: Sequence[str]) -> None:
    if lines:
        say("parts that were left out:", err=True)
    for line in lines:
        say(f"  {line}", err=True)


def _parameter_rows(built: Space) -> list[Row]:
    return [
        {
            "kind": "parameter",
            "name": parameter.name,
            "values": " ".join(map(str, parameter.values)),
            "doc": parameter.doc,
        }
        for parameter in built.parameters
    ]


def _constraint_rows(built: Space) -> list[Row]:
    return [
        {"kind": "constraint", "name": rule.require.text, "doc": rule.because, "configs": removed}
        for rule, removed in built.removed
    ]


def _print_renamed(rows: Sequence[Row], names: Mapping[str, str]) -> None:
    """Print columns of the rows under other names."""
    renamed = [{head: row[name] for name, head in names.items()} for row in rows]
    print_table(renamed, tuple(names.values()))


def _rows(built: Space) -> list[Row]:
    """Return one table for scripts: parameters, constraints with counts, seeds, totals."""
    counts: list[Row] = [
        {"kind": "count", "name": "raw", "configs": built.raw_count},
        {"kind": "count", "name": "legal", "configs": len(built)},
    ]
    return [*_parameter_rows(built), *_constraint_rows(built), *_seed_rows(built), *counts]


def _seed_rows(built: Space) -> list[Row]:
    """Return the family's seeds as they are written, each by its number for --seed-index."""
    family = built.family
    return [
        {"kind": "seed", "name": str(i), "values": seed.label, "doc": origin}
        for i, (seed, origin) in enumerate(zip(family.seeds, family.seed_origins, strict=False))
    ]
