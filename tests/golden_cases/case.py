"""A golden source: an emitted source that is kept as a file, and what it is rendered from."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import load_family

GOLDEN_FOLDER = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class GoldenCase:
    """A config, as changes to the family's first seed, and the problem it is rendered for."""

    name: str
    problem: Problem
    changes: dict[str, Value] = field(default_factory=dict)
    family: str = "sgemm_simt"
    gpu: str = "h100"
    least_arch: int = 75

    def __str__(self) -> str:
        return f"{self.family}_{self.name}"

    @property
    def path(self) -> Path:
        return GOLDEN_FOLDER / f"{self}.cu"

    @property
    def config(self) -> Config:
        first_seed = load_family(self.family).seeds[0].as_dict()
        return Config.of(self.family, first_seed | self.changes)


def square(size: int, layout: Layout = Layout.NN) -> Problem:
    return Problem(size, size, size, layout=layout)


def tensor(size: int, dtype: DType) -> Problem:
    return Problem(size, size, size, dtype=dtype)


def batched(problem: Problem, rows_a: int | None = None, count: int = 64) -> Problem:
    return replace(problem, batch=Batch(count, rows_a))


def grouped(problem: Problem, text: str = "8 uniform") -> Problem:
    return replace(problem, groups=Groups.parse(text))


def fused(problem: Problem, epilogue: str) -> Problem:
    return problem.with_epilogue(Epilogue(epilogue))
