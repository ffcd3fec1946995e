"""Parts of a model in another precision than the rest: which ones, and which precision.

`encoder.*=fp32` covers the modules that the glob matches and all that is in them; `type:add=fp32`
covers the operators of a type. Of several that cover an operator the last decides.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from etprof.base.errors import UsageError
from etprof.base.text import suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

TYPE: Final = "type:"
MOST_SCOPES: Final = 1000
_LONGEST: Final = 200


@dataclass(frozen=True)
class Scope:
    """One of them."""

    pattern: str
    """A glob of module paths, or TYPE and an operator's name in ATen, such as `type:linear`."""
    precision: str

    def __str__(self) -> str:
        return f"{self.pattern}={self.precision}"

    @property
    def type(self) -> str | None:
        """The type of operators; None for one of modules."""
        return self.pattern.removeprefix(TYPE) if self.pattern.startswith(TYPE) else None

    def covers(self, path: str, operator: str = "") -> bool:
        """Whether it is about an operator, such as `conv2d.default`, of the module at `path`."""
        if self.type is not None:
            return operator.partition(".")[0] == self.type
        return matches_module(self.pattern, path)


@functools.lru_cache(maxsize=100_000)
def matches_module(pattern: str, path: str) -> bool:
    """Whether a glob matches a module's path, or that of a module that it is in."""
    return fnmatchcase(path, pattern) or (
        "." in path and matches_module(pattern, path.rpartition(".")[0])
    )


def parse_scopes(texts: Collection[str]) -> tuple[Scope, ...]:
    """Returns what the texts say; raises UsageError for one that says nothing."""
    if len(texts) > MOST_SCOPES:
        raise UsageError(f"--scope: {len(texts)} are given; at most {MOST_SCOPES} are taken")
    return tuple(map(_parse, texts))


def _parse(text: str) -> Scope:
    pattern, _, precision = (field.strip() for field in text.rpartition("="))
    if not pattern.removeprefix(TYPE) or not precision or len(text) > _LONGEST:
        msg = f"--scope {text[:_LONGEST]!r}: write WHICH=PRECISION, such as encoder.*=fp32 or "
        raise UsageError(f"{msg}{TYPE}add=fp32, in at most {_LONGEST} characters")
    return Scope(pattern, precision)


def find_deciding(scopes: Sequence[Scope], path: str, operator: str = "") -> Scope | None:
    """Returns the scope that decides on an operator; None where the precision is the export's."""
    return next((scope for scope in reversed(scopes) if scope.covers(path, operator)), None)


def check_names(scopes: Iterable[Scope], paths: Collection[str], types: Collection[str]) -> None:
    """Raises UsageError for a glob that matches no module, or a type that nothing quantises."""
    for scope in scopes:
        if scope.type is not None and scope.type not in types:
            close = suggest(scope.type, types) or f"; known: {', '.join(sorted(types))}"
            raise UsageError(f"--scope {scope.pattern!r}: no quantiser takes this type{close}")
        if scope.type is None:
            check_module(f"--scope {scope.pattern!r}", scope.pattern, paths)


def check_module(where: str, pattern: str, paths: Collection[str]) -> None:
    """Raises UsageError for a glob that matches none of the modules; `where` is the flag and its value."""
    if not any(matches_module(pattern, path) for path in paths):
        some = ", ".join(itertools.islice(filter(None, paths), 3))
        close = suggest(pattern, paths) or f", but {some}, …"
        raise UsageError(f"{where}: the model has no such module{close}")
