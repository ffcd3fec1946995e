"""Random operators: every small change of a Python file that is code, as a span of its text.

What is text alone is left out: docstrings, messages, annotations, what `raise` and logging are given.
So is what only guards against mistakes in the code: `assert`, `zip(strict=)`, `dataclass(frozen=)`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Final

_COMPARED: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: (r"<", ("<=", ">")),
    ast.LtE: (r"<=", ("<", ">=")),
    ast.Gt: (r">", (">=", "<")),
    ast.GtE: (r">=", (">", "<=")),
    ast.Eq: (r"==", ("!=",)),
    ast.NotEq: (r"!=", ("==",)),
    ast.Is: (r"\bis\b", ("is not",)),
    ast.IsNot: (r"\bis\s+not\b", ("is",)),
    ast.In: (r"\bin\b", ("not in",)),
    ast.NotIn: (r"\bnot\s+in\b", ("in",)),
}
_COMPUTED: Final[dict[type[ast.operator], tuple[str, tuple[str, ...]]]] = {
    ast.Add: (r"\+", ("-",)),
    ast.Sub: (r"-", ("+",)),
    ast.Mult: (r"\*", ("/",)),
    ast.Div: (r"/", ("*",)),
    ast.FloorDiv: (r"//", ("/",)),
    ast.Mod: (r"%", ("*",)),
    ast.Pow: (r"\*\*", ("*",)),
    ast.BitAnd: (r"&", ("|",)),
    ast.BitOr: (r"\|", ("&",)),
    ast.LShift: (r"<<", (">>",)),
    ast.RShift: (r">>", ("<<",)),
}
_UNWRAPPED: Final = frozenset({"abs", "sorted", "reversed", "round"})
"""Calls of one argument that may be left out, so that the argument alone is left."""
_NAMED_BY_ORDER: Final = frozenset(
    {"isinstance", "issubclass", "getattr", "setattr", "hasattr", "cast", "replace", "field"}
)
"""Swapped arguments of these are a mistake that no test is needed for."""
_COMMUTE: Final = frozenset(
    {"max", "min", "maximum", "minimum", "gcd", "hypot", "isclose", "array_equal"}
)
"""Swapped arguments of these are the same, but for what is neither more nor less."""
_LARGE: Final = 10
_TOLD: Final = frozenset({"log", "logger", "logging", "warnings"})
_NOT_CODE: Final = frozenset({"__all__", "__version__"})


@dataclass(frozen=True)
class Change:
    """A span of a file's text, as offsets in characters, and what stands there instead."""

    kind: str
    start: int
    end: int
    new: str
    lines: tuple[int, int]
    """First and last line of what is changed, from 1."""
    statement: tuple[int, int]
    """Lines of the smallest statement around it, of a compound one its head."""
    names: tuple[str, ...]
    """What is assigned or defined where it runs at import; empty inside functions."""

    def apply(self, text: str) -> str:
        """Returns the changed file."""
        return text[: self.start] + self.new + text[self.end :]


def find_changes(text: str) -> list[Change]:
    """Returns all changes of a file, in the order of its text."""
    finder = _Finder(text)
    finder.visit(ast.parse(text))
    return sorted(set(finder.changes), key=lambda change: (change.start, change.end, change.new))


def compiles(text: str) -> bool:
    """Whether a changed file is still Python."""
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def one_line(text: str) -> str:
    """Joins lines and spaces, so that a text is the same however it is wrapped."""
    return " ".join(text.split())


def describe_change(text: str, change: Change) -> tuple[str, str]:
    """Returns the changed lines before and after, each on one line."""
    begin = text.rfind("\n", 0, change.start) + 1
    end = text.find("\n", change.end)
    end = len(text) if end < 0 else end
    after = text[begin : change.start] + change.new + text[change.end : end]
    return one_line(text[begin:end]), one_line(after)


class _Finder(ast.NodeVisitor):
    """Walks through a file's code and leaves out what is none."""

    def __init__(self, text: str) -> None:
        self.changes: list[Change] = []
        self._text = text
        lines = text.splitlines(keepends=True)
        self._lines = [line.encode() for line in lines]
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._functions = 0
        self._statement = (1, 1)
        self._names: tuple[str, ...] = ()

    def _offset(self, line: int, column: int) -> int:
        """Columns count bytes of UTF-8; offsets count characters."""
        return self._starts[line - 1] + len(self._lines[line - 1][:column].decode())

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _source(self, node: ast.expr) -> str:
        return self._text[self._start(node) : self._end(node)]

    def _add(self, kind: str, start: int, end: int, new: str) -> None:
        first = self._text.count("\n", 0, start) + 1
        last = self._text.count("\n", 0, end) + 1
        names = () if self._functions else self._names
        if self._text[start:end] != new:
            change = Change(kind, start, end, new, (first, last), self._statement, names)
            self.changes.append(change)

    def _between(
        self, kind: str, left: ast.expr, right: ast.expr, word: str, others: tuple[str, ...]
    ) -> None:
        """Replaces the operator's word between two operands, brackets and comments around it."""
        start, end = self._end(left), self._start(right)
        match = re.search(word, re.sub(r"#.*", lambda m: " " * len(m[0]), self._text[start:end]))
        for other in others if match else ():
            self._add(kind, start + match.start(), start + match.end(), other)  # type: ignore[union-attr]

    # Statements

    def visit(self, node: ast.AST) -> None:
        """Remembers the statement that what follows is in."""
        if not isinstance(node, ast.stmt):
            super().visit(node)
            return
        before = self._statement, self._names
        body = getattr(node, "body", None)
        last = node.end_lineno or node.lineno
        if isinstance(body, list) and body:
            last = max(node.lineno, body[0].lineno - 1)
        self._statement = (node.lineno, last)
        self._names = _names_of(node) or self._names
        super().visit(node)
        self._statement, self._names = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Decorators and defaults run when the function is made, its body when it is called."""
        for part in (
            *node.decorator_list,
            *node.args.defaults,
            *filter(None, node.args.kw_defaults),
        ):
            self.visit(part)
        self._functions += 1
        for statement in node.body:
            self.visit(statement)
        self._functions -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's name

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Of a lambda, what it returns."""
        self.visit(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Leaves the annotation out."""
        if node.value is not None and not _is_alias(node.annotation):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Leaves out what lists names or is the version."""
        if not _NOT_CODE & set(_names_of(node)):
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """The operator stands before an equals sign."""
        word, others = _COMPUTED.get(type(node.op), ("", ()))
        if others and not _is_text(node.value):
            self._between("arithmetic", node.target, node.value, word, others)
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is a message."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion of the package is there for readers and type checkers."""

    def visit_If(self, node: ast.If) -> None:
        """Turns conditions round; code that only type checkers see is none."""
        if "TYPE_CHECKING" not in ast.dump(node.test):
            self._negate(node.test)
            self.visit(node.test)
            for statement in node.body:
                self.visit(statement)
        for statement in node.orelse:
            self.visit(statement)

    def visit_While(self, node: ast.While) -> None:
        """Turns conditions round."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Turns conditions round."""
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        # A comparison and a `not` have changes of their own.
        if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):
            text = self._source(test)
            self._add("boolean", self._start(test), self._end(test), f"(not ({text}))")

    def visit_Expr(self, node: ast.Expr) -> None:
        """Takes calls out; a text of its own is a docstring."""
        if isinstance(node.value, ast.Constant):
            return
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call):
            if _is_telling(call):
                return
            self._add("removed call", self._start(node), self._end(node), "None")
        self.visit(node.value)

    # Expressions

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Before Python 3.12 the positions inside are not those of the file; most of it is text."""

    def visit_Compare(self, node: ast.Compare) -> None:
        """Each comparison of a chain by itself."""
        operands = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
            self._between("comparison", left, right, *_COMPARED[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Texts that are put together, and paths, are no arithmetic."""
        if type(node.op) in _COMPUTED and not (_is_text(node.left) or _is_text(node.right)):
            self._between("arithmetic", node.left, node.right, *_COMPUTED[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """`and` and `or`, each by itself."""
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("boolean", left, right, rf"\b{word}\b", (other,))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Leaves out a sign or a `not`."""
        if isinstance(node.op, ast.USub | ast.Not):
            kind = "boolean" if isinstance(node.op, ast.Not) else "arithmetic"
            # Brackets around the operand lie between its start and the operator's.
            start = self._start(node)
            length = 3 if isinstance(node.op, ast.Not) else 1
            self._add(kind, start, start + length, " " * (length > 1))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Numbers and truths; texts are left as they are."""
        value, start, end = node.value, self._start(node), self._end(node)
        if isinstance(value, bool):
            self._add("constant", start, end, str(not value))
        elif isinstance(value, int):
            # Of a large one, the neighbours are much the same.
            for new in {value + 1, abs(value - 1)} if value < _LARGE else {value * 3, value // 3}:
                self._add("constant", start, end, str(new))
        elif isinstance(value, float):
            self._add("constant", start, end, repr(value * 2 if value else 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        """Swaps neighbours among the arguments, or leaves the call out."""
        if _is_telling(node):
            return
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name == "dataclass":
            return
        if name in _UNWRAPPED and len(node.args) == 1:
            text = self._source(node.args[0])
            self._add("removed call", self._start(node), self._end(node), f"({text})")
        if name not in _NAMED_BY_ORDER | _COMMUTE:
            for left, right in zip(node.args, node.args[1:], strict=False):
                if not isinstance(left, ast.Starred) and not isinstance(right, ast.Starred):
                    gap = self._text[self._end(left) : self._start(right)]
                    new = f"{self._source(right)}{gap}{self._source(left)}"
                    self._add("swapped arguments", self._start(left), self._end(right), new)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """`zip(…, strict=True)` is an assertion."""
        if node.arg != "strict":
            self.visit(node.value)


def _names_of(node: ast.stmt) -> tuple[str, ...]:
    """What a statement defines or assigns."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [name for target in targets if target for name in ast.walk(target)]
    return tuple(name.id for name in names if isinstance(name, ast.Name))


def _is_text(node: ast.expr) -> bool:
    """Whether it is put together from texts, as far as that can be seen."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_alias(annotation: ast.expr) -> bool:
    """Whether what is assigned is a type."""
    return isinstance(annotation, ast.Name) and annotation.id == "TypeAlias"


def _is_telling(call: ast.Call) -> bool:
    """Whether it writes to a log or warns."""
    func = call.func
    return (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id in _TOLD
    )
