"""Runs of all purposes, and what their reports are made of: tables, columns, grades, times."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from etprof.run.manifest import load_manifest
from etprof.tables.report import DECLARED

TIMES = {column.name for table in DECLARED.values() for column in table.columns if column.is_timed}
"""Columns in which a clock had a part."""
OF_TIMES = {
    "categories", "overheads", "latency", "validity", "cold_start", "classes", "waterfall",
    "amdahl", "cells", "tracer_costs", "category_means_ms", "category_totals_ms",
}  # fmt: skip
"""Parts of a report that are made of times alone."""


def write_config(
    folder: Path, model: Path, target: dict[str, object], modes: Sequence[str], *, counts: bool
) -> Path:
    """A config that asks for every purpose; `counts`: for kernels too."""
    shared: dict[str, object] = {"runs": 2, "warmup": 0}
    if "runner" in target:
        target = dict(target)
        shared["runner_path"] = target.pop("runner")
    experiments: list[dict[str, object]] = [
        {"name": sme, "sme": sme, "threads": [1, 2], **shared} for sme in modes
    ]
    experiments.append({"name": "computed", "sme": modes[0], "mode": "outputs", **shared})
    if counts:
        experiments.append({"name": "counted", "sme": modes[0], "mode": "kernels"})
    document = {
        "model": str(model),
        "output_root": str(folder / "run"),
        "target": target,
        "experiments": experiments,
        "measurement": {
            "blocks": 2, "min_seconds": 0.001, "etdump_runs": 2, "kernels": counts,
            # What a simulated machine computes is no model's.
            "allow_inaccurate": True,
        },
    }  # fmt: skip
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


def launches_of(run: Path) -> set[tuple[str, str]]:
    """Experiment and purpose of every launch that went well."""
    manifest = load_manifest(run)
    assert manifest is not None
    assert [each.error for each in manifest.launches if each.error] == []
    return {(each.experiment, each.purpose) for each in manifest.launches}


def columns_of(report: dict[str, Any]) -> dict[str, set[str]]:
    """The tables of a report in JSON that have rows, each with its columns."""
    found: dict[str, set[str]] = {}
    for place, record in _records(report, "", set(report["experiments"])):
        found.setdefault(place, set()).update(record)
    return found


def grades_of(report: dict[str, Any]) -> dict[str, set[str]]:
    """How sure it is of each experiment which microkernels its operators ran."""
    return {
        name: {row["kernel_grade"] for row in each["operators"]} - {None}
        for name, each in report["experiments"].items()
    }


def times_in(document: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """The members that a clock had a part in, and that have a value."""
    if isinstance(document, dict):
        for key, value in document.items():
            is_number = isinstance(value, int | float)
            if (is_number and (key in TIMES or key.endswith("_ns"))) or (value and key in OF_TIMES):
                yield key
            yield from times_in(value)
    elif isinstance(document, list):
        for each in document:
            yield from times_in(each)


def _records(
    document: Any,  # noqa: ANN401 - any JSON
    place: str,
    names: Collection[str],
) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield from _records(value, f"{place}.{'*' if key in names else key}", names)
    elif isinstance(document, list):
        for each in document:
            if isinstance(each, dict):
                yield place, each
            yield from _records(each, place, names)
