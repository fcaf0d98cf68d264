"""A tiny family, a target and a compiler that need no GPU: known times, chosen faults."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from autogemm.catalogue.gpus import find_device
from autogemm.formats import Baseline, Recording, RecordingSource
from autogemm.model.config import Config
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource, Resources
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import (
    CacheState,
    Environment,
    Finals,
    FinalsEntry,
    Measurement,
    Objective,
    Outcome,
    Provenance,
    Status,
    Verification,
    cost,
)
from autogemm.space import Family, Space, build_space, load_family
from autogemm.support.errors import KernelCompileError
from autogemm.targets import MeasureOptions, Target

YAML = """\
family: tiny
summary: a family for tests
dtypes: {a: f32, b: f32, c: f32, accumulate: f32}
architectures: ">=70"
parameters:
  BM: {values: [16, 32, 64], doc: rows}
  BN: {values: [16, 32, 64], doc: columns}
  U: {values: [1, 4], doc: unrolling}
  ECHO: {values: [0, 1], doc: changes nothing in the text}
derive:
  threads: "64"
  blocks: ceil_div(M, BM) * ceil_div(N, BN)
constraints:
  - {require: BM * BN <= 2048, because: registers}
launch:
  - {kernel: gemm_kernel, threads: threads, grid: blocks, smem_bytes: 0}
workspace_bytes: 0
seeds:
  - {BM: 32, BN: 32, U: 1, ECHO: 0}
"""
TEMPLATE = """\
extern "C" __global__ void gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda,
                                       const float* B, int ldb, float beta, float* C, int ldc)
{
    constexpr int BM = {{ config.BM }};
    constexpr int BN = {{ config.BN }};
    constexpr int U = {{ config.U }};
}
"""
# 8 of the 9 tiles are legal.
NUM_LEGAL = 8 * 2 * 2
NUM_KERNELS = 8 * 2
CUBLAS_US = 100.0
CUBLAS_ERROR = 1e-6
TWIN_SLOWER_US = 3.0
CUBLAS_MJ = 60.0
# Slower ones are not worth the time that energy takes.
HOPELESS_RATIO = 1.3
BEST = {"BM": 32, "BN": 64, "U": 4}
PROBLEM = Problem(1024, 1024, 1024)

Fault = Callable[[Config], Status | BaseException | None]


def tiny_family(folder: Path) -> Family:
    """The family, written into the folder unless it is there."""
    folder.mkdir(exist_ok=True)
    for name, text in (("tiny.yaml", YAML), ("tiny.cu.jinja", TEMPLATE)):
        if not (folder / name).exists():
            (folder / name).write_text(text)
    return load_family(folder)


def twin_family(folder: Path) -> Family:
    """A second family with the same configs, whose kernels are TWIN_SLOWER_US slower."""
    folder.mkdir(exist_ok=True)
    (folder / "twin.yaml").write_text(YAML.replace("family: tiny", "family: twin"))
    (folder / "twin.cu.jinja").write_text("// the twin\n" + TEMPLATE)
    return load_family(folder)


def tiny_space(family: Family) -> Space:
    return build_space(family, PROBLEM, find_device("h100"))


def time_us(config: Config) -> float:
    """Least for BEST; the same for two configs that differ in ECHO only."""
    bm, bn, unroll = (int(config[name]) for name in ("BM", "BN", "U"))
    slower_us = TWIN_SLOWER_US if config.family == "twin" else 0.0
    return 90.0 + slower_us + abs(bm - 32) / 4 + abs(bn - 64) / 3 + 7 * (4 - unroll)


def energy_mj(config: Config) -> float:
    """Unrolling is fast and takes power: the fastest config is not the most frugal one."""
    return time_us(config) * (0.50 if config["U"] == 4 else 0.39)


def error(config: Config | None) -> float:
    """Relative error against float64; cuBLAS has that of the middle tile, the fastest more."""
    return CUBLAS_ERROR if config is None else CUBLAS_ERROR * int(config["BN"]) / 32


class FakeCompiler:
    """Compiles anything at once, but what ``broken`` names."""

    def __init__(
        self, broken: Callable[[Config], bool] = lambda config: False, registers: int = 32
    ) -> None:
        self.version = "fake 1.0"
        self.threads = 2
        self._broken = broken
        self._registers = registers
        self.num_compiled = 0

    def submit(self, source: KernelSource, arch: str) -> "Future[CompiledKernel]":
        future: Future[CompiledKernel] = Future()
        self.num_compiled += 1
        if self._broken(source.config):
            future.set_exception(KernelCompileError("kernel.cu(3): error: no such thing"))
        else:
            resources = Resources("gemm_kernel", self._registers, 0, 0, 0, 0)
            future.set_result(
                CompiledKernel(
                    source.sha256, arch, b"cubin", (resources,), "", self.version, (), 0.01
                )
            )
        return future

    def close(self) -> None:
        """Nothing is held."""


class FakeTarget(Target):
    """Answers with `time_us`, after ``delay_s``, unless ``fault`` says otherwise.

    Each config is appended to ``log``, a line each, when it is begun.
    """

    provenance = Provenance.MEASURED
    needs_cubin = True
    baseline_us = CUBLAS_US
    baseline_error: float | None = None

    def __init__(
        self,
        fault: Fault = lambda config: None,
        *,
        delay_s: float = 0.0,
        log: Path | None = None,
        driver: str = "1",
    ) -> None:
        self.device = find_device("h100")
        self.environment = Environment(driver=driver)
        self._fault = fault
        self._delay_s = delay_s
        self._log = log
        self.measured: list[Config] = []
        self.finalists: list[Candidate] = []
        self.closed = False
        self._l2 = CacheState.WARM
        self._objective = Objective.TIME

    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        self._l2 = options.l2
        self.baseline_error = error(None)
        self._objective = options.objective

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        config = candidate.config
        self.measured.append(config)
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(f"{config}\n")
        time.sleep(self._delay_s)
        fault = self._fault(config)
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            return Outcome(config, fault, "as the test wanted", candidate.source.sha256)
        return Outcome(
            config,
            Status.OK,
            kernel_sha256=candidate.source.sha256,
            resources=candidate.compiled.resources if candidate.compiled else (),
            verification=Verification(1e-5, 0.1, error(config)),
            measurement=Measurement(
                (time_us(config),),
                Provenance.MEASURED,
                l2=self._l2,
                energy_mj=self._energy_mj(config, best_us),
            ),
        )

    def _energy_mj(self, config: Config, best_us: float | None) -> float | None:
        """Return the energy of a contender, None if it is not asked for."""
        is_hopeless = best_us is not None and time_us(config) > HOPELESS_RATIO * best_us
        return None if self._objective is Objective.TIME or is_hopeless else energy_mj(config)

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        self.finalists = list(candidates)
        entries = [
            _entry(candidate.config.label, candidate.config, candidate.source.sha256, rounds)
            for candidate in candidates
        ]
        objective = self._objective
        if objective is not Objective.TIME:
            entries = [_with_energy(entry) for entry in entries]
        entries.sort(key=lambda entry: cost(objective, entry.time_us, entry.energy_mj) or 0.0)
        baseline = _entry("cuBLAS", None, "", rounds)
        if objective is not Objective.TIME:
            baseline = _with_energy(baseline)
        return Finals(tuple(entries), baseline, rounds, Provenance.MEASURED)

    def compiler(self) -> Any:
        """One that compiles anything; None as for recorded times."""
        return FakeCompiler() if self.needs_cubin else None

    def close(self) -> None:
        self.closed = True


def _with_energy(entry: FinalsEntry) -> FinalsEntry:
    own_mj = CUBLAS_MJ if entry.config is None else energy_mj(entry.config)
    return dataclasses.replace(entry, samples_mj=(own_mj,))


def _entry(name: str, config: Config | None, sha256: str, rounds: int) -> FinalsEntry:
    own_us = CUBLAS_US if config is None else time_us(config)
    ratio = CUBLAS_US / own_us
    return FinalsEntry(
        name,
        config,
        sha256,
        (own_us,) * rounds,
        ratio,
        ratio * 0.99,
        ratio * 1.01,
        tied=False,
        verification=Verification(1e-5, 0.1, error(config)),
    )


def tiny_recording(family: Family, /, **changes: object) -> Recording:
    """Every legal config of the tiny family with its time; the slowest is recorded as wrong."""
    space = tiny_space(family)
    configs = [space.config(index) for index in range(len(space))]
    slowest_us = max(map(time_us, configs))
    is_ok = [time_us(config) < slowest_us for config in configs]
    rows = list(zip(configs, is_ok, strict=True))
    facts: dict[str, object] = {
        "complete": True,
        "source": RecordingSource(
            device=dataclasses.replace(find_device("h100"), name="Recorded GPU"),
            environment=Environment(driver="580", compiler="nvrtc 13.0"),
            date="2026-11-20",
            autogemm_version="0.1.0",
            autogemm_commit="0" * 40,
            command="record",
            protocol="made up for a test",
        ),
        "family": family.name,
        "yaml_sha256": family.yaml_sha256,
        "template_sha256": family.template_sha256,
        "problem": PROBLEM,
        "fix": {},
        "baseline": Baseline(samples_us=[99.0, 100.0, 101.0], after_configs=[0, 10, 90]),
        "parameters": {
            name: [config[name] for config in configs] for name in ("BM", "BN", "U", "ECHO")
        },
        "status": [Status.OK if ok else Status.WRONG_RESULT for ok in is_ok],
        "time_us": [time_us(config) if ok else None for config, ok in rows],
        "num_samples": [9 if ok else None for ok in is_ok],
        "iqr_us": [0.5 if ok else None for ok in is_ok],
        "registers": [40] * len(rows),
        "spill_bytes": [0] * len(rows),
        "static_smem_bytes": [0] * len(rows),
        "max_error_ratio": [0.1 if ok else None for ok in is_ok],
        "error": [1e-6 if ok else None for ok in is_ok],
    }
    return Recording.model_validate(facts | changes)
