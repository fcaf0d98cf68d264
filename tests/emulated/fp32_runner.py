"""Kernels that make FP32 of tensor-core products, run on the CPU with inputs of a test's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autogemm.codegen import render
from autogemm.emulator import Emulator, Mode
from autogemm.emulator.buffers import buffers_of
from autogemm.emulator.exchange import Program, RawExchange, run_process
from autogemm.emulator.toolchain import build
from autogemm.model.config import Config, Value
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.reference import Inputs
from autogemm.space import launch_plan, load_family
from autogemm.targets.cuda.worker.problem.precision import (
    RMS_ROUNDING,
    chain_variance,
    few_step,
    num_few,
)

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Runner:
    """Runs one config's kernel on given matrices."""

    emulator: Emulator
    family: str
    values: Mapping[str, Value]
    problem: Problem

    @property
    def source(self) -> KernelSource:
        family = load_family(self.family)
        return render(family, Config.of(family.name, dict(self.values)), self.problem)

    def __call__(self, a: Matrix, b: Matrix, edit: Callable[[str], str] = str) -> Matrix:
        source, problem = self.source, self.problem
        plan = launch_plan(load_family(self.family), source.config, problem)
        emulator = self.emulator
        text = edit(source.text)
        built = build(text, plan.signature, Mode.FAST, emulator.toolchain, emulator.folder)
        c = np.full(problem.m * problem.n, np.nan, np.float32)
        nothing = np.zeros((problem.m, problem.n))
        inputs = Inputs(a.reshape(-1), b.reshape(-1), c, (), nothing, nothing)
        header = RawExchange(deadline_s=60, resident_blocks=1)
        buffers = buffers_of(inputs, problem, plan)
        raw = run_process(Program(built.executable, built.confine), header, plan, problem, buffers)
        assert raw.state.completed
        return raw.c.reshape(problem.m, problem.n)

    def normal(self, scale: float = 1.0, seed: int = 0) -> tuple[Matrix, Matrix]:
        """Normal numbers, those of A times ``scale``."""
        rng = np.random.default_rng(seed)
        a = rng.standard_normal((self.problem.m, self.problem.k)) * scale
        b = rng.standard_normal((self.problem.k, self.problem.n))
        return a.astype(np.float32), b.astype(np.float32)

    def inputs_of(self, kind: str) -> tuple[Matrix, Matrix]:
        """Normal, uniform, or normal with exponents within +-12."""
        rng = np.random.default_rng(5)
        a, b = self.normal()
        if kind == "uniform":
            return np.abs(a) % 1, np.abs(b) % 1
        if kind == "wide":
            spread = [2.0 ** rng.integers(-12, 13, x.shape) for x in (a, b)]
            return (a * spread[0]).astype(np.float32), (b * spread[1]).astype(np.float32)
        return a, b


def exact(a: Matrix, b: Matrix) -> npt.NDArray[np.float64]:
    return a.astype(np.float64) @ b.astype(np.float64)


def in_fp32(a: Matrix, b: Matrix) -> Matrix:
    """One product after the other, as a plain FP32 kernel adds them up (fused)."""
    sums = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        product = a[:, k : k + 1].astype(np.float64) * b[k : k + 1].astype(np.float64)
        sums = (sums + product).astype(np.float32)
    return sums


def relative_errors(c: Matrix, a: Matrix, b: Matrix) -> npt.NDArray[np.float64]:
    """Return each element's error, relative to its sum of sizes; 0 where there is none."""
    error = np.abs(c - exact(a, b))
    return np.divide(error, exact(np.abs(a), np.abs(b)), out=error, where=error != 0)


def relative_error(c: Matrix, a: Matrix, b: Matrix) -> float:
    """The largest error of an element, relative to its sum of sizes."""
    return float(relative_errors(c, a, b).max())


def errors_of_few(run: Runner, edit: Callable[[str], str] = str) -> float:
    """The statistic of the check with few products: errors over those that FP32 is expected to
    have (precision.py of the CUDA worker), on inputs of which few columns of A are not zero.
    """
    m, n, k = run.problem.m, run.problem.n, run.problem.k
    rng = np.random.default_rng(11)
    a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    step = few_step(k)
    a[:, [column for column in range(k) if column % step != column // step % step]] = 0
    squares = exact(a, b) ** 2
    terms = chain_variance(num_few(k)) * (a.astype(np.float64) ** 2 @ b.astype(np.float64) ** 2)
    predicted = terms + 2 * RMS_ROUNDING**2 * squares
    error = run(a, b, edit) - exact(a, b)
    return float(np.sqrt((error**2).sum() / predicted.sum()))
