"""The grammar of expressions in an ETRecord (S1): PyTorch's own pass, Python's do not."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etprof.etrecord import graph
from etprof.model_registry.expressions import (
    FUNCTIONS,
    MAX_DEPTH,
    MAX_LENGTH,
    NotAnExpressionError,
    check_expression,
)

HONEST = [
    "s0",
    "s77 - ((s77//2))",
    "((((s0 - 1)//16)) + 1)*(4*(((s53 - 1)//16)) + 4)",
    "-s77 + 2*((s77//2))",
    "u0 <= 99",
    "Max(1, u0)",
    "Min(s0, 2*s1 + 1, 8)",
    "Mod(s0, 8)",
    "Eq(s0, 3)",
    "(s0 > 1) & ~(s1 >= 2)",
    "s0**2",
    "s0**(-1)",
    "2**u0",
    "floor(0.5*s0)",
    "3.0",
    "s0 % 4",
    "int_oo",
]
HOSTILE = [
    "",
    "__import__('os').system('true')",
    "().__class__.__bases__",
    "s0.real",
    "s0[0]",
    "lambda: 0",
    "open(1)",
    "eval(s0)",
    "__s0",
    "s0 if s1 else s2",
    "[1]",
    "{1}",
    "1;2",
    "s0 := 1",
    "f'{s0}'",
    "'s0'",
    '"s0"',
    "s0 #",
    "s0\\",
    "1 2",
    "s0 s1",
    "s0 s1(2)",
    "(s0",
    "s0)",
    "s0 +",
    "*s0",
    "Max(",
    "Max()",
    "Max(*s0)",
    "Max(s0=1)",
    "s0,",
    "s0 = 1",
    "@s0",
    "ſ0",
    "１",
    "9**9**9",
    "((9**64)**64)**64",
    "if",
    "None",
    "01",
    "((((9**60)**60)**60)**60)",
    "9**65",
    "9**(9*9)",
    "9**Max(9, 9)",
    "2**u0(1)",
    "1e400",
    "0x10",
    "0\x85",
    "s0\u3000",
    "9" * (MAX_LENGTH + 1),
    "(" * (MAX_DEPTH + 2) + "1" + ")" * (MAX_DEPTH + 2),
    "(" * 9000,
]
CODE = st.sampled_from(
    [
        *"()[]{}.,'\"=:;@#\\`$!? \n\t",
        "__",
        "lambda ",
        "import ",
        "os",
        "s0",
        "eval",
        "1",
        "+",
        "if ",
    ]
)


@pytest.mark.parametrize("text", HONEST)
def test_what_pytorch_writes_passes(text: str) -> None:
    """S1: dynamic shapes are no reason to refuse a file."""
    check_expression(text)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:40]))
def test_anything_else_is_refused_at_once(text: str) -> None:
    """S1: no call but of PyTorch's functions, no attribute, no text, no huge power."""
    begun = time.process_time()
    with pytest.raises(NotAnExpressionError):
        check_expression(text)
    assert time.process_time() - begun < 1


def arithmetic() -> st.SearchStrategy[str]:
    atoms = st.one_of(
        st.from_regex(r"[su][0-9]{1,3}", fullmatch=True), st.integers(0, 10**6).map(str)
    )
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "<", ">=", "=="])
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.tuples(inner, operators, inner).map(" ".join),
            inner.map(lambda text: f"({text})"),
            inner.map(lambda text: f"({text})**2"),
            st.tuples(st.sampled_from(sorted(FUNCTIONS)), inner, inner).map(
                lambda parts: f"{parts[0]}({parts[1]}, {parts[2]})"
            ),
        ),
        max_leaves=12,
    )


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(arithmetic())
def test_all_arithmetic_passes(text: str) -> None:
    """S1: what the grammar says is accepted."""
    check_expression(text)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@example("0<\r0")
@given(st.one_of(st.text(max_size=40), st.lists(CODE, max_size=20).map("".join)))
def test_what_passes_has_only_numbers_symbols_and_arithmetic(text: str) -> None:
    """S1: a text that gets through has no sign of Python's in it, and calls nothing unknown."""
    try:
        check_expression(text)
    except NotAnExpressionError:
        return
    assert text.isascii()
    assert not set(text) & set("'\"[]{}.:;@#\\`$?") - {"."}
    assert "__" not in text
    compiled = compile(text.strip(), "<expression>", "eval", dont_inherit=True)
    assert {*compiled.co_names} <= FUNCTIONS | {
        name for name in compiled.co_names if f"{name}(" not in text.replace(" ", "")
    }


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(arithmetic(), st.sampled_from(["x.y", "x[0]", "f(x)", "'x'", "__x", "9**9**9", "x y"]))
def test_one_foreign_part_spoils_an_expression(honest: str, foreign: str) -> None:
    """S1: however deep it lies in honest arithmetic."""
    with pytest.raises(NotAnExpressionError):
        check_expression(f"Max(1, ({honest})*({foreign}))")


def test_what_is_no_text_is_no_expression() -> None:
    """S1: a list that is long was shown as text is."""
    with pytest.raises(graph.GraphError, match="is refused"):
        graph.check_expressions({"expr_str": ["s0"] * 1000})


def test_a_size_that_is_true_is_unknown() -> None:
    """S1: torch.empty takes no bool."""
    assert graph._size({"as_expr": {"hint": {"as_int": True}}}) is None
    assert graph._size({"as_int": 3}) == 3
