"""``autogemm verify --mutate``: plants bugs in kernels and shows those that no edge case finds."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from autogemm.cli.output import Form, print_rows
from autogemm.cli.progress import watched
from autogemm.cli.prose import say
from autogemm.cli.table import print_table
from autogemm.emulator import Emulator
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.results.columns import Paths, row_of, under
from autogemm.space import Family
from autogemm.support.errors import EmptySpaceError
from autogemm.verify import CaseSet, Draw, Fate, MutantResult, run_mutants

MUTANT_COLUMNS = ("fate", "rule", "line", "new", "problem", "message", "seconds", "config")
_MUTANT: Paths = {
    **under("", ("fate", "problem", "message", "seconds")),
    **under("mutant", ("rule", "line", "new")),
}
# Mutants are drawn from so many configs at most, for each of which all edge cases are rendered.
MOST_CONFIGS = 12
# Seconds after which a kernel with a planted bug counts as hanging; a correct one takes a few on
# any edge case.
HANGS_S = 20


def drawn_kernels(kernels: Sequence[tuple[Config, DType]], seed: int) -> list[tuple[Config, DType]]:
    """Draw those that mutants are made of, at most MOST_CONFIGS."""
    order = np.random.default_rng(seed).permutation(len(kernels))[:MOST_CONFIGS]
    return [kernels[index] for index in order]


def plant(family: Family, device: Device, sets: Sequence[CaseSet], draw: Draw, form: Form) -> None:
    """Plant bugs in a family's kernels; print each that survived, and how many were caught.

    Ctrl-C ends it early, with those that were judged until then. Raises EmptySpaceError where there
    is nothing to plant a bug in.
    """
    # Later runs have no use for executables of wrong kernels.
    with TemporaryDirectory() as folder:
        emulator = Emulator(deadline_s=HANGS_S, kernels_in=Path(folder))
        found = run_mutants(family, device, emulator, sets, draw)
        results: list[MutantResult] = []
        try:
            for one in watched(found, draw.count, "mutants"):
                results.append(one)
        except KeyboardInterrupt:
            if results:
                _show(results, form)
            raise
    _show(results, form)


def _show(results: Sequence[MutantResult], form: Form) -> None:
    if not results:
        raise EmptySpaceError(
            "no bug was planted: none of the configs that were drawn is legal on an edge case; fix "
            "fewer values, or draw others by --seed"
        )
    rows = [{**row_of(one, _MUTANT), "config": one.mutant.config.as_dict()} for one in results]
    if form is not Form.TABLE:
        print_rows(rows, MUTANT_COLUMNS, form)
        return
    missed = [row for row in rows if row["fate"] in {Fate.SURVIVED, Fate.OUT_OF_TIME}]
    if missed:
        print_table(missed, ("fate", "rule", "line", "new", "seconds"), title="Not caught")
    numbers = Counter(one.fate for one in results)
    say(", ".join(f"{numbers[fate]} {fate}" for fate in Fate if numbers[fate]))
