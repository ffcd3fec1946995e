"""The export manifest: what was exported, from what, how, and with which hashes."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

import etprof
from etprof.base.files import hash_file
from etprof.export import tensors, upstream
from etprof.measuring.git_state import is_tracked, read_git_state
from etprof.registry import find_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from etprof.export.quantization import QuantizationReport
    from etprof.export.request import ExportOptions, ExportRequest, Precision
    from etprof.export.stages import StageTime

SCHEMA_VERSION = 1


def file_identity(path: Path) -> dict[str, Any]:
    """Returns the SHA-256 and the size of a file."""
    return {"sha256": hash_file(path), "size_bytes": path.stat().st_size}


def write_values(values: Sequence[object], folder: Path, prefix: str) -> list[dict[str, Any]]:
    """Writes tensors as `<prefix>_<index>.bin` and returns their entries in the manifest."""
    return [
        {"index": index, **_write_value(value, folder / f"{prefix}_{index}.bin")}
        for index, value in enumerate(values)
    ]


def _write_value(value: object, path: Path) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {"dtype": type(value).__name__, "shape": None, "path": None, "value": value}
    path.write_bytes(tensors.raw_bytes(value))
    return {
        "dtype": tensors.dtype_name(value),
        "shape": list(value.shape),
        "dim_order": list(value.dim_order()),
        "path": f"{path.parent.name}/{path.name}",
        **file_identity(path),
    }


def tool_versions() -> dict[str, str]:
    """Returns the versions that decide what an export contains."""
    return {
        "etprof": etprof.__version__,
        "executorch": upstream.EXECUTORCH_VERSION,
        "torch": upstream.TORCH_VERSION,
        "torchao": importlib.metadata.version("torchao"),
        "python": platform.python_version(),
    }


def describe_subject(request: ExportRequest) -> dict[str, str]:
    """Returns what names an export: model, backend and precision."""
    return {
        "model": request.model_name(),
        "backend": request.backend,
        "precision": request.precision,
    }


def describe_source(model: str) -> dict[str, Any]:
    """Returns where the model's code is, its hash, and its commit, if it has one."""
    source = find_model(model)
    file = None if source.file is None else source.file.resolve()
    state = read_git_state(file.parent) if file is not None and is_tracked(file) else None
    return {
        "origin": source.origin,
        "sha256": source.hash_files(),
        "git": None if state is None else state.model_dump(),
    }


def describe_options(options: ExportOptions) -> dict[str, Any]:
    """Returns the options, with the checkpoint by its content."""
    weights = options.weights
    identity = None if weights is None else {"path": str(weights), **file_identity(weights)}
    return {**asdict(options), "weights": identity}


def describe_export(request: ExportRequest, stages: Sequence[StageTime]) -> dict[str, Any]:
    """Returns the part of the manifest that is known without the files."""
    return {
        "schema_version": SCHEMA_VERSION,
        **describe_subject(request),
        "source": describe_source(request.model),
        "versions": tool_versions(),
        "options": describe_options(request.options),
        "stages": [asdict(stage) for stage in stages],
    }


def describe_methods(methods: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns all methods, and at the top level the tensors of the one that is run by default."""
    default = "forward" if "forward" in methods else next(iter(methods))
    return {"method": default, "methods": methods, **methods[default]}


def describe_quantization(
    precision: Precision, reports: Mapping[str, QuantizationReport]
) -> dict[str, Any] | None:
    """Returns the full settings of the quantisation and its outcome per method, or None."""
    if precision.quantization is None:
        return None
    outcome = {name: asdict(report) for name, report in reports.items()}
    return {**asdict(precision.quantization), "methods": outcome}
