"""Node data for Model Explorer: times, difference, speedup, partitions and quantised clusters.

Keys are the node names of the exported program, which Model Explorer's ExecuTorch and PyTorch
adapters use as node ids. Operators inside the delegate are there too: their times come through the
delegation report's map. Operators that were fused have one time: it stands at the one that names
the fused operator, such as the convolution of a convolution with ReLU, so that sums are right.
Schema: `GraphNodeData` in `model_explorer.node_data_builder` of the PyPI package
ai-edge-model-explorer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etprof.run.directory import safe_name
from etprof.views.formats import Format
from etprof.views.partitions import node_groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.insight import ExperimentInsight

_GRADIENT = [{"stop": 0, "bgColor": "#fff7ec"}, {"stop": 1, "bgColor": "#d7301f"}]
GOOD_WHEN_LOW = [{"stop": 0, "bgColor": "#1a9850"}, {"stop": 1, "bgColor": "#d73027"}]
GOOD_WHEN_HIGH = [{"stop": 0, "bgColor": "#d73027"}, {"stop": 1, "bgColor": "#1a9850"}]


def node_data(assessment: Assessment) -> dict[str, Any]:
    """Returns one document per quantity, by its name; values in µs, speedup without unit."""
    if not assessment.is_split:
        return {}
    primary, comparison = assessment.primary, assessment.primary_comparison
    if primary.experiment.split.times is None:
        return {}
    after = _node_times(primary)
    data = {f"{primary.experiment.name} us": describe_nodes(after, _GRADIENT)}
    if comparison is not None:
        insight = assessment.insight.of(comparison.baseline.experiment.name)
        before = _node_times(insight)
        both = [name for name in after if name in before]
        data[f"{insight.experiment.name} us"] = describe_nodes(before, _GRADIENT)
        data["difference us"] = describe_nodes(
            {n: after[n] - before[n] for n in both}, GOOD_WHEN_LOW
        )
        ratios = {n: before[n] / after[n] for n in both if after[n] > 0}
        data["speedup"] = describe_nodes(ratios, GOOD_WHEN_HIGH)
    return {name: {"name": name, **nodes} for name, nodes in data.items()}


def group_data(assessment: Assessment) -> dict[str, Any]:
    """Returns one document for each grouping of the nodes, by its name, in the groups' colours."""
    report = assessment.primary.experiment.program.report if assessment.is_split else None
    return {
        name: {
            "name": name,
            "results": {
                node: {"value": member.group, "bgColor": member.colour}
                for node, member in members.items()
            },
        }
        for name, members in (node_groups(report) if report else {}).items()
    }


def _node_times(insight: ExperimentInsight) -> dict[str, float]:
    """Sums mean times by node of the exported graph, in µs."""
    times: dict[str, float] = {}
    for detail in insight.details:
        names = detail.attribution.graph_operators[:1] if detail.attribution else ()
        mean_ns = detail.row.times.mean_ns if detail.row.times else 0.0
        for name in names:
            times[name] = times.get(name, 0.0) + mean_ns / 1000
    return times


def describe_nodes(values: Mapping[str, float], gradient: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a quantity of nodes by their names, with its colours."""
    return {
        "results": {name: {"value": round(value, 9)} for name, value in values.items()},
        "gradient": gradient,
    }


FORMAT = Format(
    of_run=lambda run: {
        f"report_model_explorer_{safe_name(name)}.json": document
        for name, document in {**node_data(run), **group_data(run)}.items()
    }
)
