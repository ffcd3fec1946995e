"""Checks the expressions in an ETRecord or a `.pt2`, such as `2*s0 + 1`; nothing here evaluates one.

The readers of ExecuTorch and PyTorch hand them to `sympy.sympify`, which runs them as Python. What may
stand in one is what PyTorch writes: numbers, symbols, arithmetic, comparisons, and its few functions.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from typing import Final

FUNCTIONS: Final = frozenset(
    (
        *("Max", "Min", "Mod", "PythonMod", "ModularIndexing", "FloorDiv", "CleanDiv", "CeilDiv"),
        *("IntTrueDiv", "FloatTrueDiv", "PowByNatural", "FloatPow", "ToFloat", "Identity", "Abs"),
        *("CeilToInt", "FloorToInt", "TruncToInt", "RoundToInt", "floor", "ceiling", "Where"),
        *("Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not"),
    )
)
"""The only names that may be followed by a parenthesis: functions of PyTorch's shapes."""
MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 60
"""Parentheses in parentheses; each takes a few frames of Python's stack."""
MAX_EXPONENT: Final = 64
MAX_DIGITS: Final = 10_000
"""Of the largest number that the expression can come to: 9**9**9 would have 370 million."""

_SYMBOL_DIGITS: Final = 19
"""A symbol stands for a size, which has 63 bits."""
_TOKEN: Final = re.compile(
    r"[ \t]*(?:(?P<number>(?:0|[1-9]\d*)(?:\.\d*)?)|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|//|[<>=!]=|[-+*/%<>()&|~,]))",
    re.ASCII,
)
_END: Final = ("", "")
_LEVELS: Final = (
    {"<", ">", "<=", ">=", "==", "!=", "&", "|"}, {"+", "-"}, {"*", "/", "//", "%"},
)  # fmt: skip


class NotAnExpressionError(Exception):
    """Why a text is none; says where."""


def find_expressions(document: object) -> Iterator[object]:
    """Yields every expression in a program's JSON; what is no text is none, and yielded too."""
    waiting = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
            if "expr_str" in part:
                yield part["expr_str"]


def check_expression(text: str) -> None:
    """Returns when `text` is within the grammar; raises NotAnExpressionError when it is not."""
    if len(text) > MAX_LENGTH:
        raise NotAnExpressionError(f"it has {len(text)} characters, more than {MAX_LENGTH}")
    parser = _ExpressionParser(_split(text))
    parser.expression(0)
    parser.expect_end()


def _split(text: str) -> list[tuple[str, str]]:
    """Returns the kind and text of each token."""
    tokens, position = [], 0
    # As the pattern: to Python, the end of a line ends what is outside parentheses.
    stripped = text.rstrip(" \t")
    while position < len(stripped):
        token = _TOKEN.match(stripped, position)
        if token is None:
            raise NotAnExpressionError(f"{stripped[position : position + 20]!r} is not arithmetic")
        tokens.append((str(token.lastgroup), token[str(token.lastgroup)]))
        position = token.end()
    return tokens


class _ExpressionParser:
    """Recursive descent; each method returns how many digits its part may come to."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens, self._position = tokens, 0

    def expect_end(self) -> None:
        if self._peek() != _END:
            self._refuse(self._peek()[1])

    def expression(self, depth: int, level: int = 0) -> int:
        """Operands with signs of a level between them; those of a later level bind closer."""
        if level == len(_LEVELS):
            return self._power(depth)
        digits = self.expression(depth, level + 1)
        while self._peek()[1] in _LEVELS[level]:
            self._take()
            right_digits = self.expression(depth, level + 1)
            # Comparisons make no number, a sum may carry once, a product has the digits of both.
            digits = _bounded(
                (max(digits, right_digits), max(digits, right_digits) + 1, digits + right_digits)[
                    level
                ]
            )
        return digits

    def _power(self, depth: int) -> int:
        self._skip_signs()
        digits = self._atom(depth)
        if self._peek()[1] != "**":
            return digits
        self._take()
        digits = _bounded(digits * self._exponent())
        if self._peek()[1] == "**":
            raise NotAnExpressionError("a power of a power needs parentheses")
        return digits

    def _exponent(self) -> int:
        """A small number or a symbol, with a sign or in parentheses at most."""
        if in_parentheses := self._peek()[1] == "(":
            self._take()
        self._skip_signs()
        kind, text = self._take()
        if kind not in {"number", "name"} or self._peek()[1] == "(":
            raise NotAnExpressionError("an exponent is a number or a symbol")
        if kind == "number" and float(text) > MAX_EXPONENT:
            raise NotAnExpressionError(f"the exponent {text[:20]} is above {MAX_EXPONENT}")
        if in_parentheses:
            self._take_sign(")")
        return MAX_EXPONENT if kind == "name" else max(1, int(float(text)))

    def _atom(self, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise NotAnExpressionError(f"its parentheses are nested more than {MAX_DEPTH} deep")
        kind, text = self._take()
        if kind == "number":
            return len(text)
        if kind == "name":
            return self._name(text, depth)
        if text != "(":
            self._refuse(text)
        digits = self.expression(depth + 1)
        self._take_sign(")")
        return digits

    def _name(self, name: str, depth: int) -> int:
        if "__" in name or keyword.iskeyword(name):
            raise NotAnExpressionError(f"the name {name[:40]!r} is not a symbol")
        if self._peek()[1] != "(":
            return _SYMBOL_DIGITS
        if name not in FUNCTIONS:
            raise NotAnExpressionError(f"it calls {name[:40]!r}")
        self._take()
        digits = self.expression(depth + 1)
        while self._peek()[1] == ",":
            self._take()
            digits = _bounded(digits + self.expression(depth + 1))
        self._take_sign(")")
        return digits

    def _skip_signs(self) -> None:
        while self._peek()[1] in {"-", "+", "~"}:
            self._take()

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._position] if self._position < len(self._tokens) else _END

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        if token == _END:
            self._refuse("")
        self._position += 1
        return token

    def _take_sign(self, sign: str) -> None:
        if self._peek()[1] != sign:
            self._refuse(self._peek()[1])
        self._position += 1

    def _refuse(self, text: str) -> None:
        msg = f"{text[:20]!r} stands where it cannot" if text else "it ends too early"
        raise NotAnExpressionError(msg)


def _bounded(digits: int) -> int:
    if digits > MAX_DIGITS:
        raise NotAnExpressionError(f"it may come to a number of more than {MAX_DIGITS} digits")
    return digits
