"""Where a node of an exported graph comes from: its module and the line of Python."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>.*)'
)
_LIBRARY = re.compile(r"[/\\](torch|torchao)[/\\]")


@dataclass(frozen=True)
class SourceLine:
    """A line of the model's own Python code."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True)
class Origin:
    """The module a node was traced in; the root module's path is empty."""

    module_path: str
    module_type: str
    source: SourceLine | None


def find_origin(node: torch.fx.Node) -> Origin:
    """Returns the innermost module of `node` and the innermost line outside PyTorch itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return Origin(str(path), kind.rpartition(".")[2], _source_line(node.meta.get("stack_trace")))


def _source_line(stack_trace: str | None) -> SourceLine | None:
    frames = list(_FRAME.finditer(stack_trace or ""))
    own = [frame for frame in frames if not _LIBRARY.search(frame["file"])] or frames
    if not own:
        return None
    last = own[-1]
    return SourceLine(last["file"], int(last["line"]), last["function"], last["code"].strip())
