"""A tuning database with a million measurements, and how long its questions take.

The rows are invented, as many and as large as a group of people would gather in some years: six
GPUs, four drivers, forty problems, 200 trials a run, finals of nine. They are written to the tables
directly, because the tuner would take weeks.

    python benchmarks/million.py --db /tmp/million.db
    python benchmarks/with_postgres.py python benchmarks/million.py --db {db}
"""

import contextlib
import hashlib
import io
import os
import random
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from operator import itemgetter
from typing import Any, TypeVar

import click
from sqlalchemy import Connection, create_engine

from autogemm.catalogue.gpus import find_device
from autogemm.cli import main as autogemm
from autogemm.cli.table import print_table
from autogemm.formats import read_recording
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Environment, Telemetry
from autogemm.store import open_store
from autogemm.store.tables.convert import columns_of
from autogemm.store.tables.models import Base, ProblemRecord
from autogemm.targets.recorded import recording_folder

GPUS = ("h100", "a100", "l4", "rtx4090", "t4", "v100")
DRIVERS = ("535.1", "550.54", "570.12", "580.65")
SIZES = tuple(product((512, 1024, 2048, 4096), (512, 4096), (256, 512, 1024, 2048, 4096)))
TRIALS_PER_RUN = 200
FINALISTS = 8
ROUNDS = 30
SOURCE_BYTES = 4_000
FAMILY = "sgemm_simt"
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
Row = dict[str, Any]
Value = TypeVar("Value")

# Questions of a person. Kernel 17 and run 1 are as good as any.
QUESTIONS = (
    "best",
    "best --gpu h100 --size 4096x4096x4096",
    "list",
    "list --trials",
    "list --trials --status wrong_result",
    "list --trials --gpu v100 --size 512x512x256",
    "show 17",
    "show run:1",
    "show trial:500000",
    "history --gpu h100 --size 4096x4096x4096",
    "history",
    "compare run:1 run:241",
    "compare gpu:a100 gpu:h100",
    "compare driver:570 driver:580",
    "why 17 --short",
    "stats",
    "sql 'SELECT status, count(*) FROM run_trials GROUP BY status'",
    "sql 'SELECT min(time_us) FROM run_trials WHERE run_id = 7'",
)

# Commands that read all rows: processor time and memory of the command as typed.
WHOLE = (
    "db list --json",
    "db list --csv",
    "report --all {folder}/all.html",
    "report --no-explain {folder}/run.html",
    "db export --csv",
    "db export --format jsonl",
)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--db", required=True, help="As `autogemm tune --db`; filled if it is empty.")
@click.option("--trials", default=1_000_000, show_default=True, help="How many, when it is empty.")
@click.option("--repeat", default=3, show_default=True, help="The least of so many is shown.")
@click.option("--whole", is_flag=True, help="Only the commands that read all rows.")
def main(db: str, trials: int, repeat: int, whole: bool) -> None:
    """Fill the database if need be, then ask each question and print a table."""
    with open_store(db) as store:
        is_empty = not store.runs(limit=1)
        url = store.url
    if is_empty:
        began = time.monotonic()
        fill(url, trials)
        click.echo(f"filled in {time.monotonic() - began:.0f} s")
    if whole:
        rows = [
            min((weighed(words, url) for _ in range(repeat)), key=itemgetter("CPU s"))
            for words in WHOLE
        ]
        print_table(rows, tuple(rows[0]))
        return
    # Once more than counts: the first start compiles Python's modules, if nobody has yet.
    started(QUESTIONS[0], url)
    rows = [
        {
            "command": f"autogemm db {question}",
            **times("as typed", [started(question, url) for _ in range(repeat)]),
            **times("the question", [asked(question, url) for _ in range(repeat + 1)][1:]),
        }
        for question in QUESTIONS
    ]
    print_table(rows, tuple(rows[0]))


def times(name: str, found: list[tuple[float, float]]) -> dict[str, float]:
    """The least, as two columns of the table: what else the machine does only adds."""
    wall, cpu = zip(*found, strict=True)
    return {f"{name}, s": min(wall), f"{name}, CPU s": min(cpu)}


def asked(question: str, url: str) -> tuple[float, float]:
    """Seconds of the command in a process where all is imported, and those of its processor."""
    began, worked = time.monotonic(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        autogemm(["db", *shlex.split(question), "--db", url], standalone_mode=False)
    return time.monotonic() - began, time.process_time() - worked


def started(question: str, url: str) -> tuple[float, float]:
    """The same of the command as typed, with Python's start."""
    command = [sys.executable, "-m", "autogemm", "db", *shlex.split(question), "--db", url]
    # An installed package has its modules compiled.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began, worked = time.monotonic(), _of_children()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.monotonic() - began, _of_children() - worked


def weighed(words: str, url: str) -> dict[str, Any]:
    """Processor time and largest memory of a command as typed, whose output goes nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        typed = shlex.split(words.format(folder=folder))
        command = [sys.executable, "-m", "autogemm", *typed, "--db", url]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise click.ClickException(f"{words} ended with {os.waitstatus_to_exitcode(status)}")
    return {
        "command": f"autogemm {words.format(folder='.')}",
        "CPU s": used.ru_utime + used.ru_stime,
        "largest memory, MB": round(used.ru_maxrss / 1000),
    }


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fill(url: str, trials: int) -> None:
    """Invented rows, the same each time."""
    engine = create_engine(url)
    with engine.begin() as connection:
        _insert(connection, "devices", _devices())
        _insert(connection, "environments", _environments())
        _insert(connection, "problems", _problems())
        configs = _configs()
        _insert(connection, "kernels", _kernels(configs))
    chance = random.Random(0)
    runs = range(1, trials // TRIALS_PER_RUN + 1)
    with click.progressbar(list(in_groups(runs, 50)), label="runs", file=sys.stderr) as groups:
        for group in groups:
            with engine.begin() as connection:
                _add_runs(connection, group, configs, chance)
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            # Ids were given by hand: the next is one more.
            for table in ("devices", "environments", "problems", "kernels", "runs", "run_trials"):
                connection.exec_driver_sql(
                    f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"
                )
        connection.exec_driver_sql("ANALYZE")
    engine.dispose()


def _insert(connection: Connection, table: str, rows: Iterator[Row]) -> None:
    for some in in_groups(rows, 5_000):
        connection.execute(Base.metadata.tables[table].insert(), some)


def in_groups(values: Iterable[Value], size: int) -> Iterator[list[Value]]:
    rest = iter(values)
    while group := list(islice(rest, size)):
        yield group


def _devices() -> Iterator[Row]:
    for number, name in enumerate(GPUS, 1):
        facts = asdict(find_device(name))
        key = {column: facts[column] for column in ("name", "arch", "num_sms")}
        yield {"id": number, "facts": facts, **key}


def _environments() -> Iterator[Row]:
    for number, driver in enumerate(DRIVERS, 1):
        versions = Environment(driver, "13.0", "nvrtc 13.0.88", "13.1.0", "14.2.0", "3.12", "0.1")
        yield {"id": number, **asdict(versions)}


def _problems() -> Iterator[Row]:
    for number, size in enumerate(SIZES, 1):
        yield {"id": number, **columns_of(ProblemRecord, Problem(*size))}


def _configs() -> list[dict[str, Any]]:
    """The configs of a recording that ships: real ones, so that they have neighbours."""
    recording = read_recording(recording_folder() / "sgemm_simt_h200_4096_nn.json.gz")
    return [recording.values(row) for row in range(len(recording))]


def _kernels(configs: list[Row]) -> Iterator[Row]:
    filling = "// The text of a kernel, about as long as one.\n" * (SOURCE_BYTES // 47)
    for number, (size, config) in enumerate(product(SIZES, configs), 1):
        text = f"// {size} {config}\n{filling}"
        yield {
            "id": number,
            "kernel_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "template_sha256": "a" * 64,
            "family": FAMILY,
            "layout": "nn",
            "config": config,
            "source": text,
            "created_at": BEGAN,
        }


def _add_runs(
    connection: Connection, runs: list[int], configs: list[Row], chance: random.Random
) -> None:
    rows: dict[str, list[Row]] = {
        table: []
        for table in (
            *("runs", "run_trials", "measurements", "resources", "finals", "finals_entries"),
        )
    }
    for run in runs:
        problem = run % len(SIZES)
        flops = Problem(*SIZES[problem]).flops
        device = run // len(SIZES) % len(GPUS)
        fastest_us = flops / (1e7 * (len(GPUS) - device))
        began = BEGAN + timedelta(hours=4 * run)
        rows["runs"].append(_run(run, problem + 1, device + 1, began))
        chosen = chance.sample(range(len(configs)), TRIALS_PER_RUN)
        best: list[tuple[float, int]] = []
        for number, config in enumerate(chosen):
            trial = (run - 1) * TRIALS_PER_RUN + number + 1
            drawn_us = fastest_us * (1 + chance.random() ** 2)
            samples_us = _samples(drawn_us, 10, chance)
            time_us = statistics.median(samples_us)
            is_wrong = chance.random() < 0.001
            kernel = problem * len(configs) + config + 1
            rows["run_trials"].append(
                {
                    "id": trial,
                    "run_id": run,
                    "number": number,
                    "status": "wrong_result" if is_wrong else "ok",
                    "reason": "1 of 9 elements" if is_wrong else "",
                    "kernel_id": kernel,
                    "family": FAMILY,
                    "config": configs[config],
                    "time_us": None if is_wrong else time_us,
                    "compile_seconds": 0.4,
                    "measure_seconds": 0.05,
                    "pace": 1.0,
                    "finished_at": began + timedelta(seconds=number),
                    "max_abs_error": 1e-4,
                    "max_error_ratio": 0.3,
                    "error": 1e-6,
                }
            )
            if is_wrong:
                continue
            best.append((time_us, config))
            rows["measurements"].append(
                {"trial_id": trial, "time_us": time_us, "energy_mj": None}
                | {"samples_us": samples_us}
                | {"l2": "warm", "provenance": "measured", "throttled_samples": 0}
                | _timed()
            )
            rows["resources"].append(
                {"trial_id": trial, "position": 0, "kernel": "gemm_kernel", "registers": 128}
                | {"spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0}
                | {"static_smem_bytes": 32768}
            )
        if run % 20:
            rows["finals"].append(_finals(run, began))
            ranked = sorted(best)[:FINALISTS]
            rows["finals_entries"] += _entries(run, problem, ranked, configs, chance)
    for table, added in rows.items():
        _insert(connection, table, iter(added))


def _run(run: int, problem: int, device: int, began: datetime) -> Row:
    return {
        "id": run,
        "problem_id": problem,
        "device_id": device,
        "environment_id": run // (len(SIZES) * len(GPUS)) % len(DRIVERS) + 1,
        "families": FAMILY,
        "family_sha256": "f" * 64,
        "fix": "{}",
        "sampler": "surrogate",
        "seed": run,
        "l2": "warm",
        "objective": "time",
        "max_error": "",
        "fill": "uniform",
        "provenance": "measured",
        "state": "finished",
        "stopped_by": "trials",
        "owner": "host:1",
        "command": f"autogemm tune --seed {run}",
        "started_at": began,
        "finished_at": began + timedelta(seconds=TRIALS_PER_RUN),
    }


def _timed() -> Row:
    telemetry = Telemetry(1755, 2619, 650.0, 60, 0)
    return {"method": "graph", "launches_per_sample": 20, **asdict(telemetry)}


def _samples(time_us: float, count: int, chance: random.Random) -> list[float]:
    return [time_us * chance.gauss(1, 0.003) for _ in range(count)]


def _finals(run: int, began: datetime) -> Row:
    measured_at = began + timedelta(seconds=TRIALS_PER_RUN)
    facts = {"id": run, "run_id": run, "rounds": ROUNDS, "throttled_rounds": 0}
    return {**facts, "provenance": "measured", "measured_at": measured_at, **_timed()}


def _entries(
    run: int,
    problem: int,
    ranked: list[tuple[float, int]],
    configs: list[Row],
    chance: random.Random,
) -> Iterator[Row]:
    baseline_us = ranked[0][0] * 1.05
    for place, (time_us, config) in enumerate([(baseline_us, -1), *ranked]):
        is_own = place > 0
        ratio = baseline_us / time_us
        samples_us = _samples(time_us, ROUNDS, chance)
        yield {
            "finals_id": run,
            "place": place,
            "name": f"candidate {place}" if is_own else "cuBLAS",
            "kernel_id": problem * len(configs) + config + 1 if is_own else None,
            "family": FAMILY if is_own else None,
            "config": configs[config] if is_own else None,
            "registers": 128 if is_own else None,
            "time_us": statistics.median(samples_us),
            "samples_us": samples_us,
            "energy_mj": None,
            "samples_mj": None,
            "ratio": ratio,
            "ratio_low": ratio * 0.999,
            "ratio_high": ratio * 1.001,
            "tied": False,
            "max_abs_error": 1e-4,
            "max_error_ratio": 0.3,
            "error": 1e-6,
        }


if __name__ == "__main__":
    main()
