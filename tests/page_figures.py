"""Every figure with a unit on README and docs pages, and where it came from: docs/figures.toml.

`python -m tests.page_figures` lists those without a source, and writes the digests of tables and
quoted outputs whose source is named. What a source is stands at the head of docs/figures.toml.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import math
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ROOT / "docs/figures.toml"
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_SECONDS: Final = {
    "ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "seconds": 1.0, "min": 60.0, "minutes": 60.0,
    "minute": 60.0, "hours": 3600.0, "hour": 3600.0,
}  # fmt: skip
_BYTES: Final = {
    "bytes": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20,
    "GiB": 2.0**30,
}  # fmt: skip
_PLAIN: Final = {
    "%": 0.01, "times": 1.0, "dB": 1.0, "nats": 1.0, "MHz": 1e6, "GHz": 1e9,
    "GB/s": 1e9, "GFLOP/s": 1e9, "/s": 1.0,
}  # fmt: skip
_COUNTED: Final = {
    **dict.fromkeys((
        "architectures", "calls", "entry points", "files", "microkernels", "models", "operators",
        "pages", "runs", "series", "values",
    ), 1.0),
    "points": 0.01,
}  # fmt: skip
"""What is counted is a unit too; points are those of a percentage, or of a chart."""
UNITS: Final = {**_SECONDS, **_BYTES, **_PLAIN, **_COUNTED}
_UNIT: Final = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
FIGURE: Final = re.compile(
    r"(?<![\w.,/-])(?P<number>\d[\d,]*(?:\.\d+)?|\.\d+)"
    rf"(?:\s{{1,2}}(?:(?:SME2?|synthetic)\s)?(?P<unit>{_UNIT})(?![\w/])|(?P<factor>[×x])(?!\w))"
)
_BLOCK: Final = re.compile(
    r"(?P<fence>^ *```.*?^ *```)|(?P<table>(?:^ *\|[^\n]*\n)+)", re.MULTILINE | re.DOTALL
)
_GENERATED: Final = re.compile(
    r"<!-- written by .*?<!-- end -->|^<!-- by `python -m [^\n]*-->\n```.*?^```",
    re.MULTILINE | re.DOTALL,
)
"""What a command writes into a page, which names the command there."""
_NAMED_SUFFIX: Final = {
    "_NS": 1e-9, "_US": 1e-6, "_MS": 1e-3, "_S": 1.0, "_SECONDS": 1.0, "_DB": 1.0, "_BYTES": 1.0,
    "_KIB": 2.0**10, "_MIB": 2.0**20,
}  # fmt: skip


@dataclass(frozen=True)
class PageFigure:
    """A number with its unit on a page."""

    page: str
    text: str
    start: int
    line: int


@dataclass(frozen=True)
class Source:
    """An entry of docs/figures.toml."""

    page: str
    text: str = ""
    """The words with the figures, as they stand on the page."""
    block: str = ""
    """A piece of a table or of a quoted output, all of which came from there."""
    digest: str = ""
    """Of the figures of that block."""
    origin: str = ""
    """A command, a test or an address."""
    constant: str = ""
    """`module:NAME`, `module:CLASS.field` or `FILE.cpp:NUMBER` with the value of the figure in the text;
    its unit stands behind it where the name does not end in one. Of several figures, with commas."""
    computed: str = ""
    """A formula with the value of the one figure in the text, as far as that is written out."""
    example: bool = False
    """An illustration or advice, which nobody measured."""
    unknown: bool = False
    """It is not known any more which command it came from."""

    def spans(self, page_text: str) -> list[tuple[int, int]]:
        """Returns where on the page its figures stand."""
        if self.text:
            words = r"\s+".join(map(re.escape, self.text.split()))
            return [match.span() for match in re.finditer(words, page_text)]
        return [match.span() for match in _BLOCK.finditer(page_text) if self.block in match.group()]


def page_name(path: Path) -> str:
    """Returns how docs/figures.toml calls a page."""
    return path.relative_to(ROOT).as_posix()


def load_sources(text: str) -> list[Source]:
    """Reads the entries by page."""
    return [
        Source(page, **entry) for page, entries in tomllib.loads(text).items() for entry in entries
    ]


def figures_in(page: str, text: str) -> list[PageFigure]:
    """Returns every figure of a page but those that a command writes into it."""
    written = [match.span() for match in _GENERATED.finditer(text)]
    line_starts = [match.end() for match in re.finditer("\n", text)]
    return [
        PageFigure(page, match.group(), match.start(), bisect_right(line_starts, match.start()) + 1)
        for match in FIGURE.finditer(text)
        if not any(start <= match.start() < end for start, end in written)
    ]


def without_source(page: str, text: str, sources: Sequence[Source]) -> list[PageFigure]:
    """Returns the figures of a page that no entry has."""
    spans = [span for source in sources if source.page == page for span in source.spans(text)]
    return [
        figure
        for figure in figures_in(page, text)
        if not any(start <= figure.start < end for start, end in spans)
    ]


def digest_of(page_text: str, source: Source) -> str:
    """Returns the digest of the figures of a source's block."""
    ((start, end),) = source.spans(page_text)
    figures = [match.group() for match in FIGURE.finditer(page_text[start:end])]
    return hashlib.sha256(" ".join(figures).encode()).hexdigest()[:8]


def constant_value(name: str) -> float:
    """Returns a constant in seconds, bytes, or without unit."""
    name, _, unit = name.partition(" ")
    module, _, path = name.partition(":")
    if module.endswith(".cpp"):
        assert path in (ROOT / module).read_text("utf-8"), name
        return float(path.replace("'", "")) * UNITS[unit]
    first, *rest = path.split(".")
    value = _constant_of(module, first)
    for part in rest:
        value = _member(value, part)
    ends = (scale for end, scale in _NAMED_SUFFIX.items() if path.upper().endswith(end))
    return float(value) * (UNITS[unit] if unit else next(ends, 1.0))


def _constant_of(module: str, name: str) -> Any:  # noqa: ANN401 - whatever it is
    """Returns a module's constant; of a script, which may load much, it is read without running it."""
    if module.startswith("etprof."):
        return getattr(importlib.import_module(module), name)
    for statement in ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")).body:
        if isinstance(statement, ast.Assign):
            text = ast.unparse(statement)
            names = ast.unparse(statement.targets[0]).strip("()").split(", ")
            if name in names:
                return _literals(text.partition(" = ")[2], len(names))[names.index(name)]
    raise AssertionError(f"{module} has no {name}")


def _literals(text: str, count: int) -> list[Any]:
    value = eval(text, {"__builtins__": {}})  # noqa: S307 - the project's own script
    return [value] if count == 1 else list(value)


def _member(owner: Any, name: str) -> Any:  # noqa: ANN401 - a module, a class or a mapping
    """Returns an attribute, an entry, or the default of a record's field."""
    if isinstance(owner, type) and issubclass(owner, BaseModel):
        return owner.model_fields[name].get_default(call_default_factory=True)
    if isinstance(owner, type) and is_dataclass(owner):
        return next(field.default for field in fields(owner) if field.name == name)
    if isinstance(owner, Mapping):
        return owner[name]
    if isinstance(owner, Sequence):
        return owner[int(name)]
    return getattr(owner, name)


def values_of(source: Source) -> list[float]:
    """Returns the values that the figures of a source's text have to have; none where none are known."""
    if source.computed:
        names = {"log10": math.log10, "constant": constant_value, "__builtins__": {}}
        return [float(eval(source.computed, names))]  # noqa: S307 - the project's own file
    return [constant_value(name) for name in source.constant.split(", ")] if source.constant else []


def is_shown_as(value: float, figure: str) -> bool:
    """Whether a figure is the value, rounded to the digits that it has."""
    match = FIGURE.fullmatch(figure)
    assert match
    scale = 1.0 if match["factor"] else UNITS[match["unit"]]
    decimals = len(match["number"].partition(".")[2])
    distance = abs(value / scale - float(match["number"].replace(",", "")))
    return distance <= 0.5001 * 0.1**decimals


def _missing() -> Iterator[str]:
    sources = load_sources(SOURCES.read_text("utf-8"))
    for path in PAGES:
        text = path.read_text("utf-8")
        for figure in without_source(page_name(path), text, sources):
            around = " ".join(text[max(0, figure.start - 60) : figure.start + 60].split())
            yield f"{figure.page}:{figure.line}: {figure.text}: … {around} …"


def _write_digests() -> None:
    text = SOURCES.read_text("utf-8")
    for source in load_sources(text):
        page_text = (ROOT / source.page).read_text("utf-8")
        if source.block and len(source.spans(page_text)) == 1:
            digest = digest_of(page_text, source)
            text = text.replace(
                f'{{ block = "{source.block}", digest = "{source.digest}"',
                f'{{ block = "{source.block}", digest = "{digest}"',
            )
    SOURCES.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write_digests()
    print("\n".join(_missing()))
