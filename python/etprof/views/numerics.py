"""The comparison with eager as files: page, table, document, node data for Model Explorer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etprof.base.records import sme_label
from etprof.tables.numerics import OPERATORS, headline, notes, sections
from etprof.views.files import encode_csv, json_records
from etprof.views.formats.html import render_sections
from etprof.views.formats.model_explorer import GOOD_WHEN_HIGH, GOOD_WHEN_LOW, describe_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.analysis.numeric_gap import NumericGaps
    from etprof.views.formats import Content

_SHOWN: Final = {
    "own_error": GOOD_WHEN_LOW,
    "own_snr": GOOD_WHEN_HIGH,
    "eager_snr": GOOD_WHEN_HIGH,
    "float32_snr": GOOD_WHEN_HIGH,
}


def gap_files(gaps: NumericGaps) -> Mapping[str, Content]:
    """Returns the content of each file by its name."""
    return {
        "numerics.html": render_sections(headline(gaps).partition(":")[0], sections(gaps)),
        "numerics.csv": encode_csv(OPERATORS.of(gaps.rows)),
        "numerics.json": gap_document(gaps),
        "numerics_model_explorer.json": gap_nodes(gaps),
    }


def gap_document(gaps: NumericGaps) -> dict[str, Any]:
    """Returns everything as JSON data."""
    firsts = {mode: gaps.first_parted(mode) for mode in gaps.modes}
    return {
        "schema_version": 1,
        "model": gaps.model,
        "backend": gaps.backend,
        "precision": gaps.precision,
        "method": gaps.method,
        "platform": gaps.platform,
        "first_parted": {mode: row and row.node for mode, row in firsts.items()},
        "checks": {
            mode: {"snr_db": check.snr_db, "max_abs": check.max_abs, "nonfinite": check.nonfinite}
            for mode, check in gaps.checks.items()
        },
        "prevented_fusions": list(gaps.prevented),
        "notes": list(notes(gaps)),
        "operators": json_records(OPERATORS.of(gaps.rows)),
    }


def gap_nodes(gaps: NumericGaps) -> dict[str, Any]:
    """Returns Model Explorer's node data: a document per SME mode and quantity."""
    documents = {}
    for mode in gaps.modes:
        rows = OPERATORS.of(row for row in gaps.rows if row.mode == mode).records()
        for name, gradient in _SHOWN.items():
            found_at = {str(row["node"]): row[name] for row in rows}
            values = {node: v for node, v in found_at.items() if isinstance(v, float)}
            title = f"{name.replace('_', ' ')}, {sme_label(mode)}"
            documents[title] = {"name": title, **describe_nodes(values, gradient)}
    return documents
