"""What each kind of file has: its fields, with their types, limits and defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from etprof.analysis.findings.finding import Thresholds
from etprof.bench.matrix import Matrix
from etprof.config import Config
from etprof.run.delegation import DelegationReport
from etprof.run.directory import Metrics
from etprof.run.manifest import Manifest
from etprof.run.optimization import Optimization
from etprof.run.peaks import Peaks
from etprof.run.program import ExportManifest
from etprof.run.runner_result import RunnerResult

if TYPE_CHECKING:
    from pydantic import BaseModel

FIELDS_FILE: Final = "fields.txt"
_FILES: Final[Mapping[str, type[BaseModel]]] = {
    "config": Config, "bench config": Matrix, "thresholds": Thresholds,
    "manifest.json": Manifest, "metrics.json": Metrics, "export.json": ExportManifest,
    "delegation.json": DelegationReport, "optimize.json": Optimization, "peaks": Peaks,
    "result": RunnerResult,
}  # fmt: skip
_DEEPEST: Final = 6
"""A manifest holds no other inside."""


def describe_files() -> str:
    """A line for each field: where it stands, and what it may be."""
    lines: list[str] = []
    for name, record in _FILES.items():
        lines.append(f"# {name}")
        schema = record.model_json_schema()
        lines += _describe(schema, schema.get("$defs", {}), "", 0)
    return "\n".join(lines) + "\n"


def _describe(
    node: Mapping[str, Any], known: Mapping[str, Any], place: str, depth: int
) -> Iterator[str]:
    facts = {
        key: node[key]
        for key in sorted(node)
        if key not in {"$defs", "$ref", "properties", "items", "anyOf", "oneOf", "allOf", "prefixItems",
                       "additionalProperties", "patternProperties", "description", "title", "required", "propertyNames"}
    }  # fmt: skip
    required = set(node.get("required", ()))
    if facts and place:
        yield f"{place}: {', '.join(f'{key} {value}' for key, value in facts.items())}"
    if depth > _DEEPEST:
        return
    if "$ref" in node:
        yield from _describe(known[node["$ref"].rpartition("/")[2]], known, place, depth + 1)
    for name, field in node.get("properties", {}).items():
        mark = "" if name in required else "?"
        yield from _describe(field, known, f"{place}.{name}{mark}".lstrip("."), depth + 1)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for part in node.get(key, ()):
            yield from _describe(part, known, place, depth + 1)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(node.get(key), dict):
            yield from _describe(node[key], known, f"{place}{mark}", depth + 1)
    for part in node.get("patternProperties", {}).values():
        yield from _describe(part, known, f"{place}{{}}", depth + 1)
