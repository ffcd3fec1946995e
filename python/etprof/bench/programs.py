"""Exports what a matrix needs: each program once, and none again that is still right."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import etprof
from etprof.base.atomic import write_json
from etprof.base.errors import EtprofError
from etprof.base.files import hash_file
from etprof.base.json_input import read_json
from etprof.export.exporter import export_model
from etprof.registry import find_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from etprof.bench.combinations import ProgramKey

_TOOLS = ("executorch", "torch", "torchao")


@dataclass(frozen=True)
class Exported:
    """A program, or why there is none."""

    path: Path | None
    error: str | None = None


def export_programs(
    keys: Iterable[ProgramKey], folder: Path, tell: Callable[[str], None], *, anew: bool = False
) -> dict[ProgramKey, Exported]:
    """Exports into `folder` what is not there yet or out of date; a failure stops no other.

    With `anew`, everything is exported.
    """
    return {key: _export(key, folder, tell, anew=anew) for key in dict.fromkeys(keys)}


def _export(key: ProgramKey, folder: Path, tell: Callable[[str], None], *, anew: bool) -> Exported:
    request = key.request(folder)
    program = request.files().pte
    stamp = program.with_name(f"{program.name}.source.json")
    fingerprint = _fingerprint(key)
    is_fresh = fingerprint is not None and _read_stamp(stamp) == fingerprint
    if program.is_file() and is_fresh and not anew:
        return Exported(program)
    tell(f"exporting {key.label}")
    try:
        stamp.unlink(missing_ok=True)
        export_model(request)
        write_json(stamp, {"fingerprint": fingerprint})
    except EtprofError as error:
        return Exported(None, str(error))
    # The model's code and the compilers below may raise anything; the other programs go on.
    except Exception as error:  # noqa: BLE001
        return Exported(None, f"{type(error).__name__}: {error}")
    return Exported(program)


def _fingerprint(key: ProgramKey) -> str | None:
    """Hashes what an export is made of; None for models of packages, which are made anew."""
    source = find_model(key.model).hash_files()
    if source is None:
        return None
    parts = [
        etprof.__version__,
        *(version(tool) for tool in _TOOLS),
        *(str(value) for value in (key.model, key.precision, key.backend)),
        source,
        *([hash_file(key.weights)] if key.weights else []),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _read_stamp(path: Path) -> str | None:
    try:
        found = read_json(path, way_out="export again").get("fingerprint")
    except (EtprofError, AttributeError):
        # No stamp, or a damaged one: the program is exported again.
        return None
    return found if isinstance(found, str) else None
