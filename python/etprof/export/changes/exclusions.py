"""Modules that a rewrite leaves as they are: which rewrite, and where.

`spelled_norms=encoder.*` covers the modules that the glob matches and all that is in them. The same
change may be right at nine of ten modules, and `etprof optimize` leaves out the tenth by this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.base.errors import UsageError
from etprof.export.changes.scopes import check_module, matches_module

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

FLAG: Final = "--rewrite-except"
_MOST: Final = 1000
_LONGEST: Final = 200


@dataclass(frozen=True)
class RewriteExclusion:
    """One of them."""

    rewrite: str
    pattern: str
    """A glob of module paths."""

    def __str__(self) -> str:
        return f"{self.rewrite}={self.pattern}"


def parse_exclusions(texts: Collection[str]) -> tuple[RewriteExclusion, ...]:
    """Returns what the texts say; raises UsageError for one that says nothing."""
    if len(texts) > _MOST:
        raise UsageError(f"{FLAG}: {len(texts)} are given; at most {_MOST} are taken")
    return tuple(map(_parse, texts))


def _parse(text: str) -> RewriteExclusion:
    rewrite, _, pattern = (field.strip() for field in text.partition("="))
    if not rewrite or not pattern or len(text) > _LONGEST:
        msg = f"{FLAG} {text[:_LONGEST]!r}: write REWRITE=MODULE, such as spelled_norms=encoder.*, "
        raise UsageError(f"{msg}in at most {_LONGEST} characters")
    return RewriteExclusion(rewrite, pattern)


def is_excluded(exclusions: Iterable[RewriteExclusion], rewrite: str, path: str) -> bool:
    """Whether a rewrite leaves the module at `path` as it is."""
    return any(
        exclusion.rewrite == rewrite and matches_module(exclusion.pattern, path)
        for exclusion in exclusions
    )


def check_exclusions(exclusions: Iterable[RewriteExclusion], paths: Collection[str]) -> None:
    """Raises UsageError for a glob that matches no module of the model."""
    for exclusion in exclusions:
        check_module(f"{FLAG} {str(exclusion)!r}", exclusion.pattern, paths)
