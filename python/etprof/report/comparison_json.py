"""A comparison as JSON data: the same numbers as in the reports, for other programs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from etprof.base.text import with_raw_names

if TYPE_CHECKING:
    from etprof.analysis.compare.amdahl import AmdahlPanel
    from etprof.analysis.compare.comparability import Side
    from etprof.analysis.compare.comparison import Change, Comparison, OperatorChange
    from etprof.analysis.compare.waterfall import Waterfall
    from etprof.analysis.split.cold_start import LedgerEntry
    from etprof.statistics.effect import Effect

SCHEMA_VERSION = 1


def comparison_document(comparison: Comparison) -> dict[str, object]:
    """Returns a comparison as JSON data; times that mean nothing are left out."""
    document: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "name": comparison.name,
        "baseline": _side(comparison.baseline),
        "candidate": _side(comparison.candidate),
        "times_are_meaningful": comparison.times_are_meaningful,
        "differences": [dataclasses.asdict(entry) for entry in comparison.differences],
        "notes": list(comparison.notes),
        "validity": {
            "badge": comparison.validity.badge,
            "checks": [dataclasses.asdict(check) for check in comparison.validity.checks],
        },
    }
    if comparison.tokens is not None:
        document["tokens"] = {
            "first_difference": comparison.tokens.first_difference,
            "text": str(comparison.tokens),
        }
    if not comparison.times_are_meaningful:
        operators = [_structure(entry) for entry in comparison.operators]
        return with_raw_names({**document, "operators": operators})
    return with_raw_names(document | _times(comparison))


def _times(comparison: Comparison) -> dict[str, object]:
    return {
        "latency": effect_document(comparison.latency),
        "cold_start": [_ledger_entry(entry) for entry in comparison.ledger],
        "categories": {name: _change(entry) for name, entry in comparison.categories.items()},
        "classes": [
            {"category": entry.category, "class": entry.finer, **_change(change)}
            for entry, change in comparison.classes.items()
        ],
        "operators": [_operator(entry) for entry in comparison.operators],
        "waterfall": _waterfall(comparison.waterfall),
        "amdahl": _amdahl(comparison.amdahl),
    }


def effect_document(effect: Effect | None) -> dict[str, object] | None:
    """Returns a speed-up with its interval, test and verdict."""
    if effect is None:
        return None
    return {
        "verdict": effect.verdict,
        "speed_up": effect.speed_up,
        "interval": dataclasses.asdict(effect.interval) if effect.interval else None,
        "p_value": effect.p_value,
        "pairs": effect.pairs,
        "margin": effect.margin,
        "log_ratios": list(effect.log_ratios),
    }


def _side(side: Side) -> dict[str, object]:
    experiment = side.experiment
    return {
        "run": str(side.run.source),
        "experiment": experiment.name,
        "sme": experiment.sme,
        "threads": experiment.threads,
    }


def _change(change: Change) -> dict[str, object]:
    return {
        "baseline_ns": change.baseline_ns,
        "candidate_ns": change.candidate_ns,
        "delta_ns": change.delta_ns,
        "speed_up": change.speed_up,
        "baseline_share": change.baseline_share,
        "candidate_share": change.candidate_share,
    }


def _structure(entry: OperatorChange) -> dict[str, object]:
    pair = entry.aligned
    return {
        "baseline_label": pair.baseline.label if pair.baseline else None,
        "candidate_label": pair.candidate.label if pair.candidate else None,
        "match": pair.match,
        "category": pair.row.operator_class.category,
    }


def _operator(entry: OperatorChange) -> dict[str, object]:
    return {
        **_structure(entry),
        **_change(entry.change),
        "speed_up_interval_over_calls": list(entry.interval) if entry.interval else None,
    }


def _ledger_entry(entry: LedgerEntry) -> dict[str, object]:
    return {
        "label": entry.label,
        "unit": entry.unit,
        "baseline": entry.baseline,
        "candidate": entry.candidate,
        "effect": effect_document(entry.effect),
    }


def _waterfall(waterfall: Waterfall) -> dict[str, object]:
    return {
        "baseline_ns": waterfall.baseline_ns,
        "candidate_ns": waterfall.candidate_ns,
        "residual_ns": waterfall.residual_ns,
        "steps": [
            {"label": step.label, "kind": step.kind, "delta_ns": step.delta_ns}
            for step in waterfall.steps
        ],
    }


def _amdahl(panel: AmdahlPanel) -> dict[str, object]:
    bottlenecks = [
        {
            "category": entry.operator_class.category,
            "class": entry.operator_class.finer,
            "mean_ns": entry.mean_ns,
            "share": entry.share,
            "speed_up_if_removed": entry.speed_up_if_removed,
        }
        for entry in panel.bottlenecks
    ]
    return {
        "accelerated_operators": panel.accelerated_operators,
        "accelerated_share": panel.accelerated_share,
        "accelerated_speed_up": panel.accelerated_speed_up,
        "achieved": panel.achieved,
        "ceiling": panel.ceiling,
        "bottlenecks": bottlenecks,
    }
