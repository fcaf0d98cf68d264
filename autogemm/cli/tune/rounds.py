"""The raw rounds of finals as a file, from which ratios and intervals can be recomputed."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, FinalsEntry
from autogemm.support.errors import UsageError
from autogemm.support.files import write_atomically

# A run, its problem and its finals.
Decided = tuple[int | None, Problem, Finals]
FORMAT = "autogemm-rounds"


def check_rounds_file(place: str | None) -> None:
    """Raises UsageError for a name that does not end as JSON files do, or a folder that does not
    exist."""
    if place is None:
        return
    if not place.endswith((".json", ".json.gz")):
        raise UsageError(f"--rounds-file {place}: the name ends in .json or .json.gz")
    if not Path(place).parent.is_dir():
        raise UsageError(f"--rounds-file {place}: there is no such folder")


def write_rounds(place: str, gpu: str, found: Sequence[Decided]) -> None:
    """Write the finals of each problem; sample i of all contestants comes from the same round.

    Raises OSError.
    """
    problems = [
        {
            "run_id": run_id,
            "problem": problem.label,
            "size": problem.size_label,
            "layout": str(problem.layout),
            "dtype": str(problem.dtype),
            "gpu": gpu,
            "provenance": str(finals.provenance),
            "rounds": finals.rounds,
            "method": finals.method,
            "launches_per_sample": finals.launches_per_sample,
            "baseline": finals.baseline.name,
            "contestants": list(_contestants(finals)),
        }
        for run_id, problem, finals in found
    ]
    text = json.dumps({"format": FORMAT, "problems": problems}).encode()
    # Without the time of writing: the same rounds are the same bytes.
    packed = gzip.compress(text, mtime=0) if place.endswith(".gz") else text
    write_atomically(Path(place), packed)


def _contestants(finals: Finals) -> Iterator[dict[str, Any]]:
    """The baseline, the other calls that took part, the kernels with the winner first."""
    yield _entry("baseline", finals.baseline)
    for call in finals.calls:
        if call.samples_us:
            yield {"name": call.name, "role": "call", "samples_us": call.samples_us}
    for entry in finals.entries:
        yield _entry("kernel", entry)


def _entry(role: str, entry: FinalsEntry) -> dict[str, Any]:
    config = entry.config
    return {
        "name": entry.name,
        "role": role,
        "family": config.family if config is not None else None,
        "config": config.as_dict() if config is not None else None,
        "kernel_sha256": entry.kernel_sha256,
        "samples_us": entry.samples_us,
        "samples_mj": entry.samples_mj,
    }
