"""Puts a request into a device's terms: its paths, and what to bring back from where."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.targets.request import RunnerRequest


@dataclass(frozen=True)
class Translation:
    """A request as the device is asked it."""

    request: RunnerRequest
    """All paths are on the device."""
    wanted: list[tuple[str, Path]]
    """What it leaves in its output folder, and where that belongs here; the result is last."""
    names: dict[str, str]
    """Paths on the device, and the paths here that people know them by."""

    def localize(self, text: str) -> str:
        """Names files in `text` as people here know them."""
        for remote, local in self.names.items():
            text = text.replace(remote, local)
        return text


def files_to_send(request: RunnerRequest) -> list[Path]:
    """Returns the files that the runner reads."""
    return [request.model, *([request.data] if request.data else []), *request.inputs]


def translate(request: RunnerRequest, places: Mapping[Path, str], folder: str) -> Translation:
    """Translates `request`; `places` are the sent files on the device, `folder` takes outputs."""
    named = (
        ("run.etdump", request.etdump),
        ("kernels.json", request.kernel_trace),
        ("outputs", request.outputs),
        ("result.json", request.result),
    )
    wanted = [(name, path) for name, path in named if path is not None]
    remote = {**places, **{path: f"{folder}/{name}" for name, path in wanted}}
    there = {path: Path(place) for path, place in remote.items()}
    translated = dataclasses.replace(
        request,
        model=there[request.model],
        data=there[request.data] if request.data else None,
        inputs=tuple(there[path] for path in request.inputs),
        etdump=there[request.etdump] if request.etdump else None,
        kernel_trace=there[request.kernel_trace] if request.kernel_trace else None,
        outputs=there[request.outputs] if request.outputs else None,
        result=there[request.result],
    )
    return Translation(translated, wanted, {place: str(path) for path, place in remote.items()})
