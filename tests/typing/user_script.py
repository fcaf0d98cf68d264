"""A user's script, which mypy checks strictly with the package: what is right passes, and what is
wrong is refused (an ignored error that is none is an error itself).
"""

from typing import Any

import autogemm
from autogemm.model.results.outcome import Outcome
from autogemm.tuning import Event, TrialDone


def watch(event: Event) -> None:
    """Print each new best."""
    if isinstance(event, TrialDone) and event.improved and event.best is not None:
        print(event.num_trials, event.best.time_us)


def main(a: Any, b: Any) -> None:
    """Use each function of the package."""
    result: autogemm.TuneResult = autogemm.tune(
        (4096, 256, 1024),
        dtype="bf16",
        family=["gemm_mma", "gemm_wgmma"],
        fix={"BM": (64, 128), "STAGES": 3},
        objective="energy",
        max_error=1e-2,
        epilogue="gelu(acc + bias[n])",
        progress=watch,
    )
    best: Outcome | None = result.best
    try:
        row: autogemm.ResultRow = autogemm.best(4096, dtype="f32", gpu="h100")
    except autogemm.NotFoundError as error:
        raise SystemExit(str(error)) from error
    print(best, row.ratio, autogemm.gemm(a, b, beta=1.0, c=a), autogemm.__version__)
    autogemm.forget()

    autogemm.tunes(4096)  # type: ignore[attr-defined]
    autogemm.tune(4096, trials="many")  # type: ignore[arg-type]
    autogemm.tune(4096, progres=True)  # type: ignore[call-arg]
    autogemm.tune(4096, progress="often")  # type: ignore[arg-type]
    print(row.rato)  # type: ignore[attr-defined]
