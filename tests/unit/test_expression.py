"""The expression language: what it means, over integers and columns, and what it refuses."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autogemm.space import parse_expression
from autogemm.support.errors import FamilyError

ENV = {"a": 7, "b": 3, "zero": 0, "minus": -7, "lane": "rows"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("a // b * b + a % b", 7),
        ("minus // b", -3),
        ("minus % b", 2),
        ("-a // b", -3),
        ("- -a", 7),
        ("2 - -1", 3),
        ("ceil_div(a, b)", 3),
        ("ceil_div(minus, b)", -2),
        ("min(a, b, 1)", 1),
        ("max(a, b, 1,)", 7),
        ("1 < b < a", 1),
        ("1 < a < b", 0),
        ("1 < a > b != 4", 1),
        ("a == 7 and b", 1),
        ("zero or minus", 1),
        ("zero or zero", 0),
        ("not a == 7 or b == 3", 1),
        ("not (a and zero)", 1),
        ("a or b and zero", 1),
        ("a in (1, 7)", 1),
        ("a not in (1, 7)", 0),
        ("a + 1 in (8,)", 1),
        ("zero < a in (7, 8)", 1),
        ("a if a > b else b", 7),
        ("1 if zero else 2 if zero else 3", 3),
        ("(a > b) + (b > zero)", 2),
        ("lane == 'rows'", 1),
        ('lane in ("quads", "z")', 0),
        ("'x' if a else 'y'", "x"),
        ("a\n  + b", 10),
        ("0", 0),
    ],
)
def test_meaning(text: str, value: int | str) -> None:
    expression = parse_expression(text)
    assert expression.evaluate(ENV) == value
    assert type(expression.evaluate(ENV)) is type(value)
    columns = {
        name: np.array([one, one], dtype=None if isinstance(one, str) else np.int64)
        for name, one in ENV.items()
    }
    assert np.asarray(expression.evaluate(columns)).tolist() in ([value, value], value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a value at position 1, got the end"),
        ("a +", "expected a value at position 4, got the end"),
        ("a b", "expected an operator at position 3, got 'b'"),
        ("a / b", "'/' at position 3 is not allowed; divide with //"),
        ("a ** 2", "position 3, got '**'; powers are not allowed"),
        ("a = 2", "'=' at position 3 is not allowed; compare with =="),
        ("a && b", "write and"),
        ("a[0]", "'[' at position 2"),
        ("a.b.c", "'.' at position 4"),
        ("1.5", "numbers are whole"),
        ("012", "numbers do not begin with 0"),
        ("1_000", "position 2"),
        ("(a", "expected ')' at position 3"),
        ("a if b", "expected 'else' at position 7"),
        ("a not b", "expected 'in' at position 7"),
        ("a in b", "expected '(' at position 6"),
        ("a in (1,) == 1", "expected no further comparison at position 11"),
        ("in", "expected a value at position 1, got 'in'"),
        ("__import__('os')", "'__import__' at position 1 is no function"),
        ("min(a)", "min takes 2 or more values, got 1"),
        ("ceil_div(a, b, 1)", "ceil_div takes 2 values, got 3"),
        ("lambda: 1", "':' at position 7"),
        ("'it\\'s'", "position 1"),
        ("a # b", "'#' at position 3"),
        ("9223372036854775808", "does not fit 64 bits"),
        ("\uff41", "position 1"),
    ],
)
def test_refused_with_position(text: str, message: str) -> None:
    with pytest.raises(FamilyError) as caught:
        parse_expression(text, "mine.yaml: derive.x")
    assert message in str(caught.value)
    assert str(caught.value).startswith("mine.yaml: derive.x: ")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 400 + "a" + ")" * 400,
        "not " * 240 + "a",
        "-" * 900 + "a",
        "a in (" * 160 + "a" + ")" * 20,
        "a if b else " * 80 + "a",
        "+".join("a" * 300),
        "a<(" * 30 + "a<b<a" + "<a)" * 30 + "<b",
        "min(a," * 130 + "a" + ")" * 130,
        "a + " * 1000 + "a",
    ],
)
def test_bounded_in_length_and_depth(text: str) -> None:
    with pytest.raises(FamilyError):
        parse_expression(text)


def test_names_and_pickling() -> None:
    expression = parse_expression("min(BM, device.arch) if lane == 'rows' else BM")
    assert expression.names == {"BM", "device.arch", "lane"}
    assert pickle.loads(pickle.dumps(expression)) == expression


@pytest.mark.parametrize("op", ["//", "%"])
def test_division_by_zero_names_the_expression(op: str) -> None:
    expression = parse_expression(f"8 {op} x", "mine.yaml: constraints.2")
    for env in ({"x": 0}, {"x": np.array([1, 0])}):
        with pytest.raises(FamilyError, match=r"constraints\.2: '8 .* x': division by zero"):
            expression.evaluate(env)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x > 0 and 8 % x == 0", [0, 1, 1, 0]),
        ("x == 0 or 8 % x == 0", [1, 1, 1, 0]),
        ("8 // x if x > 0 else -1", [-1, 8, 4, 2]),
        ("-1 if x == 0 else ceil_div(8, x)", [-1, 8, 4, 3]),
        ("x in (0, 3) or 8 // x == 4", [1, 0, 1, 1]),
    ],
)
def test_branches_not_taken_are_not_evaluated_row_by_row(text: str, values: list[int]) -> None:
    result = parse_expression(text).evaluate({"x": np.arange(4)})
    assert isinstance(result, np.ndarray)
    assert result.tolist() == values
    assert result.dtype == np.int64


def test_texts_choose_between_columns() -> None:
    env = {"lane": np.array(["rows", "quads", "rows"]), "x": np.array([1, 2, 3])}
    chosen = parse_expression("'long text' if x > 2 else lane").evaluate(env)
    assert np.asarray(chosen).tolist() == ["rows", "quads", "long text"]
    assert np.asarray(parse_expression("lane != 'rows'").holds(env)).tolist() == [
        False,
        True,
        False,
    ]


def test_overflow_is_an_error_and_not_a_wrong_answer() -> None:
    product = parse_expression("x * y * y")
    with pytest.raises(FamilyError, match="64 bits"):
        product.evaluate({"x": 2**31, "y": 2**31})
    with pytest.raises(FamilyError, match="64 bits"):
        product.evaluate({"x": np.array([1, 2**31]), "y": np.array([1, 2**31])})


def test_extremes_of_different_rows_are_no_overflow() -> None:
    big = 2**40
    result = parse_expression("x * y").evaluate({"x": np.array([1, big]), "y": np.array([big, 1])})
    assert isinstance(result, np.ndarray)
    assert result.tolist() == [big, big]
    assert result.dtype == np.int64


def test_columns_without_rows() -> None:
    empty = np.empty(0, dtype=np.int64)
    for text in ("x * x + 1", "x and 1 // x", "1 if x else 2", "min(x, 3)"):
        result = parse_expression(text).evaluate({"x": empty})
        assert np.size(result) in (0, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + lane", r"\+ takes numbers"),
        ("lane < 'z'", "takes numbers"),
        ("x == lane", "compares a number with a text"),
        ("lane in ('rows', 1)", "compares a number with a text"),
        ("lane and x", "and takes numbers"),
        ("1 if lane else 2", "as c"),
        ("1 if x else 'y'", "two numbers or two texts"),
        ("min(lane, lane)", "min takes numbers"),
    ],
)
def test_numbers_and_texts_do_not_mix(text: str, message: str) -> None:
    with pytest.raises(FamilyError, match=message):
        parse_expression(text).kind({"x": int, "lane": str})


@pytest.mark.parametrize(
    ("text", "constants", "c"),
    [
        ("ceil_div(M, BM) * ceil_div(N, BN)", {"BM": 128, "BN": 64},
         "ceil_div(M, 128) * ceil_div(N, 64)"),
        ("min(M, N, K)", {}, "min(min(M, N), K)"),
        ("(M + N) * K - (M - N)", {}, "(M + N) * K - (M - N)"),
        ("M // (N // 2) // 2", {}, "M / (N / 2) / 2"),
        ("-(M + 1) % N", {}, "-(M + 1) % N"),
        ("M - BM", {"BM": -1}, "M - -1"),
        ("M if SPLIT > 1 else N", {"SPLIT": 1}, "N"),
        ("BM // SPLIT if SPLIT > 0 else M", {"SPLIT": 0, "BM": 2}, "M"),
        ("2 * (M if M > N else N)", {}, "2 * (M > N ? M : N)"),
        ("1 < M <= N", {}, "1 < M && M <= N"),
        ("M or N and K", {}, "M || (N && K)"),
        ("M in (1, 2)", {}, "M == 1 || M == 2"),
        ("not M == N", {}, "!(M == N)"),
        ("(M < N) == (N < K)", {}, "(M < N) == (N < K)"),
        ("USE and M", {"USE": 1}, "M != 0"),
        ("USE and M", {"USE": 0}, "0"),
        ("USE or M > 1", {"USE": 0}, "M > 1"),
        ("M if LANE == 'rows' else N", {"LANE": "rows"}, "M"),
        ("2 * (3 + 4)", {}, "14"),
    ],
)  # fmt: skip
def test_to_c(text: str, constants: dict[str, int | str], c: str) -> None:
    assert parse_expression(text).to_c(constants) == c


def test_to_c_needs_texts_to_be_constants() -> None:
    with pytest.raises(FamilyError, match="'rows' cannot be written"):
        parse_expression("M if LANE == 'rows' else N").to_c({})


# Properties: each drawn expression comes with what it means in Python.
Pair = tuple[str, str]


def joined(op: str) -> Any:
    return lambda pair: (f"({pair[0][0]} {op} {pair[1][0]})", f"({pair[0][1]} {op} {pair[1][1]})")


def called(function: str) -> Any:
    return lambda pair: tuple(f"{function}({pair[0][i]}, {pair[1][i]})" for i in (0, 1))


def logical(op: str) -> Any:
    return lambda pair: (
        f"({pair[0][0]} {op} {pair[1][0]})",
        f"int(bool({pair[0][1]}) {op} bool({pair[1][1]}))",
    )


NAMES = ("x", "y", "z")


def expressions(
    operators: tuple[str, ...], lowest: int, *, with_choices: bool
) -> st.SearchStrategy[Pair]:
    numbers = st.integers(lowest, 9).map(lambda n: f"({n})" if n < 0 else str(n))
    leaves = st.sampled_from(NAMES) | numbers

    def wider(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
        two = st.tuples(inner, inner)
        arithmetic = [
            st.sampled_from(operators).flatmap(lambda op: two.map(joined(op))),
            st.sampled_from(("min", "max", "ceil_div")).flatmap(lambda f: two.map(called(f))),
        ]
        choices = [
            st.sampled_from(("and", "or")).flatmap(lambda op: two.map(logical(op))),
            st.tuples(inner, inner, inner).map(
                lambda t: tuple(f"({t[0][i]} if {t[1][i]} else {t[2][i]})" for i in (0, 1))
            ),
            inner.map(lambda p: (f"(not {p[0]})", f"int(not {p[1]})")),
        ]
        return st.one_of(*arithmetic, *(choices if with_choices else ()))

    return st.recursive(leaves.map(lambda leaf: (leaf, leaf)), wider, max_leaves=8)


PYTHON = {"ceil_div": lambda a, b: -(-a // b), "min": min, "max": max, "int": int, "bool": bool}
ANY = expressions(
    ("+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">="), -9, with_choices=True
)
# Nothing negative, where C++ divides otherwise, and nothing that Python spells in another form.
SAME_IN_C = expressions(("+", "*", "//", "%", "==", "<"), 0, with_choices=False)
ROWS = st.lists(st.tuples(*[st.integers(-4, 9)] * 3), min_size=1, max_size=6)


def python_value(text: str, env: dict[str, int]) -> int | None:
    """None for a division by zero."""
    try:
        return int(eval(text, {"__builtins__": {}, **PYTHON}, env))
    except ZeroDivisionError:
        return None


@settings(max_examples=200)
@given(ANY, ROWS)
def test_means_what_python_means_and_columns_what_rows_mean(
    pair: Pair, rows: list[tuple[int, int, int]]
) -> None:
    expression = parse_expression(pair[0])
    expected = [python_value(pair[1], dict(zip(NAMES, row, strict=True))) for row in rows]
    for row, value in zip(rows, expected, strict=True):
        env = dict(zip(NAMES, row, strict=True))
        if value is None:
            with pytest.raises(FamilyError, match="division by zero"):
                expression.evaluate(env)
        else:
            assert expression.evaluate(env) == value
    columns = dict(zip(NAMES, np.array(rows, dtype=np.int64).T, strict=True))
    if None in expected:
        with pytest.raises(FamilyError, match="division by zero"):
            expression.evaluate(columns)
    else:
        result = np.broadcast_to(np.asarray(expression.evaluate(columns)), len(rows))
        assert result.tolist() == expected
        holds = np.broadcast_to(np.asarray(expression.holds(columns)), len(rows))
        assert holds.tolist() == [bool(value) for value in expected]


@settings(max_examples=150)
@given(SAME_IN_C, st.tuples(*[st.integers(0, 9)] * 3), st.sets(st.sampled_from(NAMES)))
def test_c_text_has_the_same_value(
    pair: Pair, row: tuple[int, int, int], constant: set[str]
) -> None:
    env = dict(zip(NAMES, row, strict=True))
    expected = python_value(pair[1], env)
    if expected is not None:
        c = parse_expression(pair[0]).to_c({name: env[name] for name in constant})
        assert python_value(c.replace("/", "//"), env) == expected
