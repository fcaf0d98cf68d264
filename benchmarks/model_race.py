r"""Races models whose layers run tuned kernels with the same models under torch.compile.

    benchmarks/gpu_box.sh run python3 benchmarks/model_race.py --commit COMMIT --out OUT
    ... model_race.py --phases decode-1,decode-16,decode-64 --commit COMMIT --out OUT
    ... model_race.py --catalogue --commit COMMIT --out OUT      nothing is tuned

The models have random weights: eight layers of Llama-3-8B in BF16 (prefill, decode behind a context
of 1024 tokens, a training step), and FP32 blocks 1024 wide. Each phase is recorded by
`autogemm.record`, its products are tuned into a database of its own, and `autogemm.patch` puts the
winners in; both models then go through torch.compile. Outputs of all are compared with FP32 (FP32
models with float64); two calls of ours, uncompiled, must give the same bits. Times are interleaved
in random order; all but training is captured in CUDA graphs. The ratio is to the faster one of
torch.compile's modes in --modes.

Written after each phase: model_GPU.json and .txt; --out with rows of an earlier call goes on.
"""

import copy
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import torch
from llama import Sizes, random_caches, random_llama
from suite_tables import gpu_label
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch_timing import interleaved

import autogemm
from autogemm.model.results.finals import paired_ratio
from autogemm.support.errors import AutogemmError
from autogemm.support.files import write_atomically

OURS = "autogemm"
CONTEXT = 1024
# Our error may be so many times that of torch.compile, without and with emulation of FP32: without
# it both round as often.
MOST_ERROR = (1.25, 4.0)
Row = dict[str, Any]


@dataclass(frozen=True)
class Phase:
    """The work of a model: prefill, decode, train or blocks (FP32).

    ``rows`` are tokens of a prompt or a training step, sequences of decode, or rows of the blocks.
    """

    name: str
    kind: str
    rows: int
    emulation: bool = False

    @property
    def is_captured(self) -> bool:
        """Whether calls are timed within CUDA graphs."""
        return self.kind != "train"


PHASES = (
    Phase("prefill-2048", "prefill", 2048),
    Phase("decode-1", "decode", 1),
    Phase("decode-16", "decode", 16),
    Phase("decode-64", "decode", 64),
    Phase("prefill-8192", "prefill", 8192),
    Phase("blocks-f32", "blocks", 2048),
    Phase("blocks-f32-emulated", "blocks", 2048, emulation=True),
    Phase("train-2048", "train", 2048),
)


class Blocks(torch.nn.Module):  # type: ignore[misc]
    """Feed-forward blocks of FP32 with a bias and GELU, 1024 wide, with residuals."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        linear = torch.nn.Linear
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(linear(width, 4 * width), torch.nn.GELU(), linear(4 * width, width))
            for _ in range(layers)
        )

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + block(x)
        return x


@dataclass(frozen=True)
class Work:
    """A model, and what a phase does with it.

    ``run`` calls a model, compiled or not; ``results`` are the tensors of that call to compare.
    """

    model: Any
    run: Callable[[Any], Any]
    results: Callable[[Any], Sequence[Any]]


def work_of(phase: Phase, sizes: Sizes, device: str, *, exact: bool = False) -> Work:
    """Return the work of a phase; with ``exact`` in the type that results are compared with."""
    if phase.kind == "blocks":
        torch.manual_seed(1)
        dtype = torch.float64 if exact else torch.float32
        model = Blocks(sizes.width // 4, sizes.layers).to(device)
        x = torch.randn(phase.rows, sizes.width // 4, device=device).to(dtype)
        return inference(model.to(dtype), lambda called: called(x))
    # The exact model has the rounded weights.
    model = random_llama(sizes, torch.bfloat16, device)
    model = model.float() if exact else model
    made = torch.Generator(device).manual_seed(3)
    is_decode = phase.kind == "decode"
    shape = (phase.rows, 1) if is_decode else (1, phase.rows)
    tokens = torch.randint(sizes.vocabulary, shape, generator=made, device=device)
    if is_decode:
        dtype = torch.float32 if exact else torch.bfloat16
        rounded = random_caches(sizes, phase.rows, CONTEXT, torch.bfloat16, device)
        caches = [tuple(one.to(dtype) for one in pair) for pair in rounded]
        return inference(model, lambda called: called(tokens, caches))
    if phase.kind == "prefill":
        return inference(model, lambda called: called(tokens, only_last=True))
    return training(model, tokens)


def inference(model: Any, call: Callable[[Any], Any]) -> Work:
    """A call without gradients."""

    def run(called: Any) -> Any:
        with torch.no_grad():
            return call(called)

    return Work(model, run, lambda called: [run(called)])


def training(model: Any, tokens: Any) -> Work:
    """Forward and backward of the loss of the next token."""

    def run(called: Any) -> Any:
        called.zero_grad(set_to_none=True)
        logits = called(tokens)[0, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits, tokens[0, 1:])
        loss.backward()
        return loss.detach()

    def results(called: Any) -> list[Any]:
        loss = run(called)
        # Names of a compiled module differ; the order does not.
        return [loss, *(one.grad.clone() for one in called.parameters() if one.dim() > 1)]

    return Work(model, run, results)


def error_of(found: Sequence[Any], exact: Sequence[Any]) -> float:
    """The largest relative Frobenius error of a tensor; NaN where one is."""
    errors = [
        (one.to(other.dtype) - other).norm() / other.norm()
        for one, other in zip(found, exact, strict=True)
    ]
    return float(torch.stack([error.double() for error in errors]).max())


def has_repeated(work: Work, model: Any) -> bool:
    """Whether a second call gave the same bits. Attention is made of products and softmax for it:
    fused kernels of attention may add up in the order in which blocks arrive.
    """
    before = torch.are_deterministic_algorithms_enabled()
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        # cuBLAS cannot promise it for all streams; there is one here.
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            pairs = zip(work.results(model), work.results(model), strict=True)
            return all(torch.equal(one, other) for one, other in pairs)
        finally:
            torch.use_deterministic_algorithms(before)


def sharing(model: Any) -> Any:
    """A second model with the parameters of the first."""
    return copy.deepcopy(model, {id(one): one for one in model.parameters()})


def tune(work: Work, phase: Phase, folder: Path, budget: str, *, certify: bool) -> float:
    """Tune what one call of the model multiplies; the seconds it took."""
    began = time.monotonic()
    shapes = folder / f"{phase.name}.jsonl"
    with autogemm.record(str(shapes)):
        work.run(work.model)
    command = [sys.executable, "-m", "autogemm", "tune", "--problems", str(shapes)]
    command += ["--budget", budget, "--trials", "80", "--rounds", "16", "--require-gpu"]
    # Weights come from memory in decoding.
    command += ["--l2", "rotate"] if phase.kind == "decode" else []
    command += ["--allow-emulation"] if phase.emulation else []
    command += [] if certify else ["--no-certify"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AutogemmError(f"tune ended with {done.returncode}: {done.stderr[-300:]}")
    return time.monotonic() - began


def race(  # noqa: PLR0913
    phase: Phase,
    sizes: Sizes,
    modes: Sequence[str],
    rounds: int,
    *,
    device: str = "cuda",
    gpu: str | None = None,
    catalogue: bool = False,
) -> Row:
    """A row. Raises AutogemmError for outputs that are wrong or differ from call to call."""
    work = work_of(phase, sizes, device)
    ours = sharing(work.model)
    emulation = phase.emulation
    summary = autogemm.patch(ours, gpu=gpu, catalogue=catalogue, allow_emulation=emulation)
    models = {f"torch.compile {mode}": compiled(work.model, mode) for mode in modes}
    models[OURS] = compiled(ours, modes[0])
    found = {name: work.results(model) for name, model in models.items()}
    repeats = {"torch": has_repeated(work, work.model), OURS: has_repeated(work, ours)}
    if repeats["torch"] and not repeats[OURS]:
        raise AutogemmError(f"{phase.name}: outputs differ from those of a second call")
    exact_work = work_of(phase, sizes, device, exact=True)
    exact = exact_work.results(exact_work.model)
    errors = {name: error_of(results, exact) for name, results in found.items()}
    del exact, exact_work, found
    most = MOST_ERROR[emulation]
    allowed = most * max(error for name, error in errors.items() if name != OURS)
    if not errors[OURS] <= allowed:
        raise AutogemmError(f"{phase.name}: the error is {errors[OURS]:.2e} of {allowed:.2e}")
    calls = {name: (lambda model=model: work.run(model)) for name, model in models.items()}
    samples = interleaved(calls, rounds, captured=phase.is_captured)
    times = {name: statistics.median(one) for name, one in samples.items()}
    baseline = min((name for name in times if name != OURS), key=lambda name: times[name])
    ratio = paired_ratio(samples[baseline], samples[OURS], seed=1)
    return {
        "phase": phase.name,
        "tokens": phase.rows,
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "ratio_of_medians": times[baseline] / times[OURS],
        "baseline": baseline,
        "times_us": times,
        "errors": errors,
        "repeats": repeats,
        "num_replaced": summary.num_replaced,
        "num_layers": len(summary.layers),
        "left": sorted({f"{one.shape}: {one.why}" for one in summary.layers if one.why}),
        "samples_us": samples,
    }


def compiled(model: Any, mode: str) -> Any:
    """The model under torch.compile; ``eager`` leaves it as it is."""
    return model if mode == "eager" else torch.compile(model, mode=mode, dynamic=False)


def table(results: Mapping[str, Any]) -> str:
    """Return a line for each phase."""
    lines = [
        f"{results['gpu']}, {results['date']}, commit {results['commit']}, torch "
        f"{results['torch']}",
        *(f"command: {one}" for one in dict.fromkeys(row["command"] for row in results["rows"])),
        "ratio: time of the faster mode of torch.compile over ours, median of the paired ratios of",
        "interleaved rounds; error: relative Frobenius, ours and that mode's; layers: replaced by",
        "patch, of all",
        "",
        f"{'phase':<20} {'kernels':<9} {'ratio':>6} {'95 %':^14} {'medians':>7} {'ms':>9} "
        f"{'torch ms':>9} {'error':>8} {'torch':>8} {'layers':>7}  baseline",
    ]
    for row in results["rows"]:
        base = row["baseline"]
        layers = f"{row['num_replaced']}/{row['num_layers']}"
        lines.append(
            f"{row['phase']:<20} {row['kernels']:<9} {row['ratio']:6.3f} {row['ratio_low']:6.3f}.."
            f"{row['ratio_high']:.3f}  {row['ratio_of_medians']:6.3f} "
            f"{row['times_us'][OURS] / 1e3:9.3f} {row['times_us'][base] / 1e3:9.3f} "
            f"{row['errors'][OURS]:8.1e} {row['errors'][base]:8.1e} {layers:>7}  {base}"
        )
    lines += [f"failed: {name}: {why}" for name, why in results["failed"].items()]
    return "\n".join([*lines, ""])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--phases", default=",".join(one.name for one in PHASES), help="By commas.", show_default=True
)
@click.option("--layers", default=8, help="Layers of each model.", show_default=True)
@click.option(
    "--modes",
    default="default,max-autotune-no-cudagraphs",
    help="Modes of torch.compile, by commas; ours goes through the first.",
    show_default=True,
)
@click.option("--budget", default="3s", help="Search time of each product.", show_default=True)
@click.option("--rounds", default=20, help="Rounds of the race.", show_default=True)
@click.option("--catalogue", is_flag=True, help="Tune nothing: use the winners that ship.")
@click.option("--certify/--no-certify", default=True, help="Final checks of each winner.")
@click.option("--limit", default=math.inf, help="Begin no phase after so many s.")
@click.option("--commit", default="", help="The commit that is measured, for the record.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def main(phases: str, out: Path, commit: str, limit: float, **options: Any) -> None:
    """Ratios of whole models to torch.compile."""
    known = {one.name: one for one in PHASES}
    if unknown := [name for name in phases.split(",") if name not in known]:
        raise click.UsageError(f"no phase {unknown[0]!r}; there are {', '.join(known)}")
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name()
    path = out / f"model_{gpu_label(name)}.json"
    results: dict[str, Any] = {
        "gpu": name,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "torch": torch.__version__,
        "command": shlex.join(
            [
                "benchmarks/model_race.py",
                *("OUT" if one == str(out) else one for one in sys.argv[1:]),
            ]
        ),
        "rows": json.loads(path.read_text())["rows"] if path.exists() else [],
        "failed": {},
    }
    kernels = "catalogue" if options["catalogue"] else "tuned"
    for phase in map(known.__getitem__, phases.split(",")):
        if (phase.name, kernels) in {(row["phase"], row["kernels"]) for row in results["rows"]}:
            continue
        if time.monotonic() - began > limit:
            click.echo(f"stopped before {phase.name}", err=True)
            break
        try:
            row = measured(phase, options)
            command = results["command"]
            results["rows"].append({**row, "kernels": kernels, "command": command})
        except (AutogemmError, RuntimeError) as error:
            results["failed"][phase.name] = str(error)
        torch.compiler.reset()
        torch.cuda.empty_cache()
        write_atomically(path, (json.dumps(results, indent=1) + "\n").encode())
        write_atomically(path.with_suffix(".txt"), table(results).encode())
    click.echo(table(results))


def measured(phase: Phase, options: Mapping[str, Any]) -> Row:
    """Tune a phase in a database of its own, unless the catalogue is asked for, and race it."""
    sizes = Sizes(layers=options["layers"])
    with tempfile.TemporaryDirectory() as place:
        os.environ["AUTOGEMM_DB"] = f"{place}/model.db"
        seconds, catalogue = None, options["catalogue"]
        if not catalogue:
            work, budget = work_of(phase, sizes, "cuda"), options["budget"]
            seconds = tune(work, phase, Path(place), budget, certify=options["certify"])
            del work
            torch.cuda.empty_cache()
        autogemm.forget()
        modes = options["modes"].split(",")
        row = race(phase, sizes, modes, options["rounds"], catalogue=catalogue)
        return {**row, "tuning_s": seconds}


if __name__ == "__main__":
    main()
