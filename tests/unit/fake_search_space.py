"""A small enumerated space with a known landscape, for the tests of the search."""

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from autogemm.model.config import Config, Value
from autogemm.model.results.outcome import Measurement, Outcome, Provenance, Status

Values = dict[str, tuple[Value, ...]]


@dataclass(frozen=True)
class Axis:
    name: str
    values: tuple[Value, ...]


class GridSpace:
    """All combinations of ``values`` that ``legal`` lets through, in their natural order."""

    def __init__(
        self,
        values: Values,
        legal: Callable[[dict[str, Value]], bool] = lambda config: True,
        seeds: Iterable[dict[str, Value]] = (),
    ) -> None:
        self.parameters = tuple(Axis(name, choices) for name, choices in values.items())
        rows = itertools.product(*(axis.values for axis in self.parameters))
        self._rows = [row for row in rows if legal(dict(zip(values, row, strict=True)))]
        self._index = {row: i for i, row in enumerate(self._rows)}
        axes = self.parameters
        self.codes = np.array(
            [[a.values.index(v) for a, v in zip(axes, row, strict=True)] for row in self._rows],
            dtype=np.int16,
        ).reshape(len(self._rows), len(axes))
        self.seeds = [self._index[tuple(seed.values())] for seed in seeds]

    def __len__(self) -> int:
        return len(self._rows)

    def config(self, index: int) -> Config:
        names = (axis.name for axis in self.parameters)
        return Config("grid", tuple(zip(names, self._rows[index], strict=True)))

    def index(self, config: Config) -> int | None:
        return self._index.get(tuple(value for _, value in config))

    def features(self, rows: np.ndarray | None = None) -> tuple[list[str], np.ndarray]:
        columns = [
            np.array(
                [math.log2(1 + v) if isinstance(v, int) else i for i, v in enumerate(a.values)]
            )
            for a in self.parameters
        ]
        codes = self.codes if rows is None else self.codes[rows]
        stacked = [column[codes[:, i]] for i, column in enumerate(columns)]
        return [axis.name for axis in self.parameters], np.stack(stacked, axis=1).astype(float)


TILES: Values = {
    "BM": (16, 32, 64, 128, 256),
    "BN": (16, 32, 64, 128, 256),
    "BK": (8, 16, 32),
    "TM": (2, 4, 8, 16),
    "TN": (2, 4, 8, 16),
    "ORDER": ("row", "snake"),
    "STAGES": (1, 2, 3, 4),
    "ARCH": (90,),
}


def tiles(seeds: Iterable[dict[str, Value]] = ()) -> GridSpace:
    """2,122 legal configs with the shape of a GEMM family, one parameter fixed."""

    def legal(c: dict[str, Value]) -> bool:
        threads = (int(c["BM"]) // int(c["TM"])) * (int(c["BN"]) // int(c["TN"]))
        smem = 4 * int(c["STAGES"]) * int(c["BK"]) * (int(c["BM"]) + int(c["BN"]))
        return threads in (128, 256) and smem <= 49152

    return GridSpace(TILES, legal, seeds)


def tiles_time_us(config: Config) -> float:
    """A valley with its bottom near 128 x 64 tiles, and an interaction of tile and thread tile."""
    log = {name: math.log2(value) for name, value in config if isinstance(value, int)}
    slow = 0.30 * (log["BM"] - 7) ** 2 + 0.25 * (log["BN"] - 6) ** 2 + 0.10 * (log["BK"] - 4) ** 2
    slow += 0.20 * (log["BM"] - log["TM"] - 4) ** 2 + 0.15 * (log["STAGES"] - 1.6) ** 2
    slow += 0.08 if config["ORDER"] == "row" else 0.0
    return 100.0 * math.exp(slow)


def ok(config: Config, time_us: float) -> Outcome:
    return Outcome(config, Status.OK, measurement=Measurement((time_us,), Provenance.MEASURED))


def failed(config: Config, reason: str = "too many registers") -> Outcome:
    return Outcome(config, Status.COMPILE_FAILED, reason)
