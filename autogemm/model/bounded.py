"""Values with a bound on their error, through the arithmetic of an epilogue.

A value is what exact arithmetic gives, its error how far FP32 arithmetic may be from it: running
error analysis (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.3), with

    fl(x op y) = (x op y) (1 + d),  |d| <= u = 2^-24,

and for a function f, of which the kernel has the approximation g,

    |g(x') - f(x)| <= L |x' - x| + |g(x') - f(x')|,

L being the largest slope of f (Lipschitz constant), or what f does between x - e and x + e where it
has none (exp, division). What is too large for FP32 becomes infinite, and stays it in what follows.
Errors of g are those of the functions that emitted kernels call (expf, erff and tanhf of CUDA have
2 units in the last place at most: CUDA C++ Programming Guide, mathematical functions; ex2.approx
and rcp.approx a relative error of 2^-22 and 2^-23: PTX ISA), and of the arithmetic around them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autogemm.model.epilogue import Epilogue
from autogemm.model.formula import HALVES, INTERLEAVED, Apply, Node, Number

# The name of the second of two columns of the product.
SECOND = "acc, second"
Doubles = npt.NDArray[np.float64]
U = 2.0**-24
# The distance of subnormal numbers of FP32, and the least that is rounded to infinity.
TINY = 2.0**-149
OVERFLOW = 2.0**128 - 2.0**103
# Largest slopes: of gelu at sqrt(2), of gelu_tanh and silu near 1.4 and 2.4.
SLOPES = {"gelu": 1.13, "gelu_tanh": 1.13, "silu": 1.1, "sigmoid": 0.25, "tanh": 1.0}
# Errors of the emitted functions, as multiples of U: of the argument's size, and of the result's.
ROUNDINGS = {
    "gelu": (8.0, 4.0),
    "gelu_tanh": (4.0, 16.0),
    "silu": (4.0, 16.0),
    "sigmoid": (0.0, 16.0),
    "tanh": (0.0, 4.0),
}


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """Values and how far off each may be; the two broadcast like NumPy's arrays.

    The error is infinite where nothing is known.
    """

    value: Doubles
    error: Doubles

    def __neg__(self) -> "Bounded":
        return Bounded(-self.value, self.error)

    def __add__(self, other: "Bounded") -> "Bounded":
        return _rounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other: "Bounded") -> "Bounded":
        return self + -other

    def __mul__(self, other: "Bounded") -> "Bounded":
        mixed = np.abs(self.value) * other.error + np.abs(other.value) * self.error
        return _rounded(self.value * other.value, mixed + self.error * other.error)

    def __truediv__(self, other: "Bounded") -> "Bounded":
        value = self.value / other.value
        # Nothing is known where the divisor may be 0.
        least = np.abs(other.value) - other.error
        error = (self.error + np.abs(value) * other.error) / least
        return _rounded(value, np.where(least > 0, error, np.inf))


def exactly(value: float | Doubles) -> Bounded:
    """A value without an error."""
    array = np.asarray(value, np.float64)
    return Bounded(array, np.zeros_like(array))


def result_of(epilogue: Epilogue, given: Mapping[str, Bounded]) -> Bounded:
    """The epilogue evaluated for these values of its names, elements [m, n] broadcast; where it is
    gated, ``acc`` and SECOND are the two columns of the product.

    A second output is among the given values by its name (`output_of`).

    Errors are those of FP32 arithmetic; the rounding to C's type is not among them.
    """
    return _result_of(epilogue.root, given)


def output_of(epilogue: Epilogue, given: Mapping[str, Bounded]) -> dict[str, Bounded]:
    """The second output in FP32 by its name, as `result_of` has C; empty where there is none."""
    if epilogue.output is None:
        return {}
    return {epilogue.output.name: _result_of(epilogue.output_root, given)}


def _result_of(root: Node, given: Mapping[str, Bounded]) -> Bounded:
    def value_of(node: Node) -> Bounded:
        if isinstance(node, Number):
            return exactly(float(np.float32(node.value)))
        if not isinstance(node, Apply):
            return given[SECOND if node.axes in (HALVES[1], INTERLEAVED[1]) else node.name]
        args = [value_of(arg) for arg in node.args]
        return _OPERATIONS[node.op](*args)

    with np.errstate(all="ignore"):
        found = value_of(root)
    return Bounded(found.value, np.where(np.isfinite(found.value), found.error, 0.0))


def _rounded(value: Doubles, error: Doubles) -> Bounded:
    """One rounding to FP32 of a value that is that far off."""
    return _held(value, error + U * (np.abs(value) + error) + TINY)


def _held(value: Doubles, error: Doubles) -> Bounded:
    """What FP32 holds of a value that is that far off: infinity of what is surely too large, and
    anything of what may be.
    """
    size = np.abs(value)
    is_beyond = size - error >= OVERFLOW
    value = np.where(is_beyond, np.copysign(np.inf, value), value)
    # An error that is no number comes of one that is infinite.
    error = np.where(size + error < OVERFLOW, error, np.inf)
    return Bounded(value, np.where(np.isfinite(value), error, 0.0))


def _smooth(name: str, function: Callable[[Doubles], Doubles]) -> Callable[[Bounded], Bounded]:
    """A function of bounded slope."""
    slope, (of_argument, of_result) = SLOPES[name], ROUNDINGS[name]

    def apply(x: Bounded) -> Bounded:
        value = function(x.value)
        error = slope * x.error
        # Smooth functions of the table are 0 or 1 far out, and bounded by their argument.
        rounding = of_result * (np.abs(value) + error) + of_argument * np.minimum(
            np.abs(x.value) + x.error, 1e30
        )
        return _held(value, error + U * rounding + TINY)

    return apply


def _gelu(x: Doubles) -> Doubles:
    erf = np.frompyfunc(math.erf, 1, 1)
    halves: Doubles = 0.5 * x * (1.0 + np.asarray(erf(x / math.sqrt(2.0)), np.float64))
    return halves


def _sigmoid(x: Doubles) -> Doubles:
    result: Doubles = 1.0 / (1.0 + np.exp(-x))
    return result


def _gelu_tanh(x: Doubles) -> Doubles:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    # x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)).
    result: Doubles = x / (1.0 + np.exp(-2.0 * inner))
    return result


def _exp(x: Bounded) -> Bounded:
    value = np.exp(x.value)
    error = value * np.expm1(x.error)
    return _held(value, error + 4 * U * (value + error) + TINY)


def _pick(values: Callable[[Doubles, Doubles], Doubles]) -> Callable[[Bounded, Bounded], Bounded]:
    def apply(x: Bounded, y: Bounded) -> Bounded:
        return Bounded(values(x.value, y.value), np.maximum(x.error, y.error))

    return apply


def _relu(x: Bounded) -> Bounded:
    return Bounded(np.where(x.value < 0, 0.0, x.value), x.error)


def _clamp(x: Bounded, low: Bounded, high: Bounded) -> Bounded:
    value = np.where(x.value < low.value, low.value, x.value)
    value = np.where(value > high.value, high.value, value)
    return Bounded(value, np.maximum(x.error, np.maximum(low.error, high.error)))


_OPERATIONS: Mapping[str, Callable[..., Bounded]] = {
    "neg": lambda x: -x,
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "relu": _relu,
    "abs": lambda x: Bounded(np.abs(x.value), x.error),
    "min": _pick(np.fmin),
    "max": _pick(np.fmax),
    "clamp": _clamp,
    "exp": _exp,
    "gelu": _smooth("gelu", _gelu),
    "gelu_tanh": _smooth("gelu_tanh", _gelu_tanh),
    "silu": _smooth("silu", lambda x: x * _sigmoid(x)),
    "sigmoid": _smooth("sigmoid", _sigmoid),
    "tanh": _smooth("tanh", np.tanh),
}
