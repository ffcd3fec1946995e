"""Every threshold, limit and default that is a number or a switch: a change of one is read before it is kept.

They are read from the source, so that no library has to be there, and every Python says the same.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.source_checkout import ROOT

LIMITS_FILE: Final = "limits.txt"
_PACKAGE: Final = ROOT / "python/etprof"
_OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.BitOr: operator.or_,
}  # fmt: skip


def describe_limits() -> str:
    """A line for each name at the head of a module or class, and for each argument with a default."""
    lines: list[str] = []
    for path in sorted(_PACKAGE.rglob("*.py")):
        found = [*_limits(ast.parse(path.read_text("utf-8")).body, "")]
        if found:
            lines += [f"# {path.relative_to(_PACKAGE).as_posix()}", *found]
    return "\n".join(lines) + "\n"


def _limits(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _limits(statement.body, f"{prefix}{statement.name}.")
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _defaults(statement.args, f"{prefix}{statement.name}")
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield from _line(f"{prefix}{ast.unparse(statement.target)}", statement.value)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _line(f"{prefix}{ast.unparse(target)}", statement.value)


def _defaults(arguments: ast.arguments, function: str) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = positional[len(positional) - len(arguments.defaults) :]
    pairs = [
        *zip(with_default, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if default is not None:
            yield from _line(f"{function}({argument.arg})", default)


def _line(name: str, value: ast.expr) -> Iterator[str]:
    """Says it where it is a number or a switch, or has numbers in it."""
    try:
        number = _value(value)
    except ValueError:
        return
    if number is not None and _has_number(number):
        yield f"{name} = {number!r}"


def _has_number(value: Any) -> bool:  # noqa: ANN401 - what a literal may be
    if isinstance(value, list | tuple):
        return any(map(_has_number, value))
    return isinstance(value, int | float)


def _value(node: ast.expr) -> Any:  # noqa: ANN401
    """Returns what an expression of literals gives; calls in it as a list of name and arguments.

    Raises ValueError for an expression with names in it, whose values stand elsewhere.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [_value(element) for element in node.elts]
    if isinstance(node, ast.Dict):
        keys = [key for key in node.keys if key is not None]
        return [(_value(key), _value(value)) for key, value in zip(keys, node.values, strict=True)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        words = [_value(argument) for argument in node.args]
        named = [(keyword.arg, _value(keyword.value)) for keyword in node.keywords]
        return [node.func.id, *words, *named]
    raise ValueError(ast.unparse(node))
