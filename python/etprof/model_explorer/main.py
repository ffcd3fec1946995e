"""The adapter and the node data provider that Model Explorer loads.

The adapter opens a `.pte` with its delegation report beside it, and an ETDump in a run directory:
the graph is then the run's, and its nodes have times and SME routes. The provider colours any graph
of the same program, PyTorch's own adapter's too, by a run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from model_explorer import (
    Adapter,
    AdapterMetadata,
    GetConfigEditorsResult,
    NodeDataProvider,
    NodeDataProviderMetadata,
    NodeDataProviderResult,
    config_editor,
    graph_builder,
    node_data_builder,
)

from etprof.base.errors import EtprofError
from etprof.base.files import expand_home
from etprof.base.text import clean
from etprof.model_explorer.run_graph import (
    COLOURS,
    delegate_times,
    details_by_node,
    facts_of,
    find_run,
    measured_fact,
    read_methods,
    read_run,
    sme_routes,
)
from etprof.views.formats.model_explorer import node_data
from etprof.views.partitions import (
    OUTSIDE,
    delegate_of,
    node_groups,
    partitions,
    quantised_clusters,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.insight import ExperimentInsight
    from etprof.run.delegation import GraphOperator, MethodReport
    from etprof.views.partitions import GroupMember

_RUN: Final = "run"


class ProgramAdapter(Adapter):  # type: ignore[misc]
    """Draws a program by its modules, by its delegates and by what quantisation joins, in colours."""

    metadata = AdapterMetadata(
        id="etprof",
        name="ExecuTorch program or run (etprof)",
        description="What is delegated, and of a run how long it takes and whether it runs on SME",
        fileExts=["pte", "etdump"],
    )

    def convert(self, model_path: str, settings: Mapping[str, object]) -> dict[str, list[Any]]:
        """Returns a graph of each method for each way to group it."""
        del settings
        path = Path(model_path)
        if path.suffix == ".pte":
            drawn = [_draw(name, report, ()) for name, report in read_methods(path).items()]
        else:
            assessment, report = read_run(find_run(path))
            manifest = assessment.run.manifest
            method = manifest.model.method if manifest and manifest.model.method else "forward"
            drawn = [_draw(method, report, assessment.insight.experiments)]
        return {"graphCollections": drawn}


def _draw(name: str, report: MethodReport, experiments: Sequence[ExperimentInsight]) -> Any:  # noqa: ANN401 - of a package without types
    modules = {
        operator.name: operator.origin.module_path.replace(".", "/")
        for operator in report.operators
    }
    delegates = {operator.name: delegate_of(report, operator) for operator in report.operators}
    sums: dict[str, dict[str, str]] = {}
    for insight in experiments:
        for delegate, duration in delegate_times(insight, report).items():
            sums.setdefault(delegate, {})[f"{insight.experiment.name}: operators"] = duration
    parts, clusters = partitions(report), quantised_clusters(report)
    graphs = [
        graph_builder.Graph(id="by module", nodes=_nodes(report, experiments, modules, parts)),
        graph_builder.Graph(
            id="by delegate",
            nodes=_nodes(report, experiments, delegates, parts),
            groupNodeAttributes=sums or None,
            groupNodeConfigs=_group_colours(parts),
        ),
    ]
    if clusters:
        namespaces = {o.name: clusters[o.name].group if o.name in clusters else ""
                      for o in report.operators}  # fmt: skip
        graphs.append(
            graph_builder.Graph(
                id="by quantised cluster",
                nodes=_nodes(report, experiments, namespaces, clusters),
                groupNodeConfigs=_group_colours(clusters),
            )
        )
    return graph_builder.GraphCollection(label=name, graphs=graphs)


def _group_colours(members: Mapping[str, GroupMember]) -> list[Any]:
    """Returns the colour of each group for the box around it."""
    return [
        graph_builder.GroupNodeConfig(
            namespaceRegex=f"^{re.escape(member.group)}$", backgroundColor=member.colour
        )
        for member in dict.fromkeys(members.values())
    ]


def _nodes(
    report: MethodReport,
    experiments: Sequence[ExperimentInsight],
    namespaces: Mapping[str, str],
    members: Mapping[str, GroupMember],
) -> list[Any]:
    """Returns the operators in the colours of their groups, and what they read that none of them made."""
    measured = [(insight, details_by_node(insight)) for insight in experiments]
    nodes, external_inputs = [], dict[str, str]()
    for operator in report.operators:
        namespace = namespaces[operator.name]
        facts = dict(facts_of(report, operator))
        for insight, details_of in measured:
            for detail in details_of.get(operator.name, ()):
                label = f"{insight.experiment.name}: {detail.row.label}"
                facts[label] = measured_fact(detail)
        external_inputs |= {
            name: namespace
            for name in operator.inputs
            if name not in {**namespaces, **external_inputs}
        }
        nodes.append(_node(operator, namespace, facts, members.get(operator.name)))
    values = [
        graph_builder.GraphNode(
            id=name, label=name, namespace=namespace if namespace != OUTSIDE else ""
        )
        for name, namespace in external_inputs.items()
    ]
    return [*values, *nodes]


def _node(
    operator: GraphOperator, namespace: str, facts: Mapping[str, str], member: GroupMember | None
) -> Any:  # noqa: ANN401
    shape = [] if operator.shape is None else ["×".join(map(str, operator.shape))]
    return graph_builder.GraphNode(
        id=operator.name,
        label=operator.operator.split(".")[0],
        namespace=namespace,
        style=graph_builder.GraphNodeStyle(backgroundColor=member.colour) if member else None,
        attrs=[graph_builder.KeyValue(key=key, value=value) for key, value in facts.items()],
        incomingEdges=[
            graph_builder.IncomingEdge(sourceNodeId=name, targetNodeInputId=str(number))
            for number, name in enumerate(operator.inputs)
        ],
        outputsMetadata=[
            graph_builder.MetadataItem(
                id="0", attrs=[graph_builder.KeyValue(key="tensor_shape", value=shape_text)]
            )
            for shape_text in shape
        ],
    )


class RunProvider(NodeDataProvider):  # type: ignore[misc]
    """Colours a graph by its partitions, and by a run: times, difference, speedup, SME."""

    metadata = NodeDataProviderMetadata(
        id="etprof_run",
        name="etprof: times, SME and partitions",
        description="Times of each side, difference, speedup, what runs on SME, partitions and clusters",
        icon="speed",
    )

    def get_config_editors(self, provider_id: str) -> Any:  # noqa: ANN401
        """Asks for the run, which an ETDump that is open names already."""
        del provider_id
        return GetConfigEditorsResult(
            configEditors=[
                config_editor.TextInputConfigEditor(
                    id=_RUN,
                    label="Run directory",
                    description="As out_toy_cnn/runs/linux; empty for an ETDump's own",
                )
            ]
        )

    def run(
        self,
        provider_id: str,
        model_path: str,
        graph_id: str,
        config_values: Mapping[str, object],
        graph: object = None,
    ) -> Any:  # noqa: ANN401
        """Returns partitions, and the quantities of the run; or what is wrong with it."""
        del provider_id, graph_id, graph
        run_path = str(config_values.get(_RUN) or "").strip()
        try:
            if not run_path and model_path.endswith(".pte"):
                # Of a program alone, what its export says.
                (report, *_) = read_methods(Path(model_path)).values()
                return NodeDataProviderResult(result=_groups(report))
            assessment, report = read_run(find_run(expand_home(run_path or model_path)))
        except EtprofError as error:
            return NodeDataProviderResult(error=clean(str(error)))
        return NodeDataProviderResult(result=[*_quantities(assessment), *_groups(report)])


def _groups(report: MethodReport) -> list[Any]:
    """Returns what each node is in: a partition, and a cluster that quantisation joins."""
    return [
        node_data_builder.GraphNodeData(
            name=name,
            results={
                key: node_data_builder.NodeDataResult(value=member.group, bgColor=member.colour)
                for key, member in members.items()
            },
        )
        for name, members in node_groups(report).items()
    ]


def _quantities(assessment: Assessment) -> list[Any]:
    quantities = [
        node_data_builder.GraphNodeData(
            name=name,
            results=_results(
                {key: node_result["value"] for key, node_result in quantity["results"].items()}
            ),
            gradient=[node_data_builder.GradientItem(**stop) for stop in quantity["gradient"]],
        )
        for name, quantity in node_data(assessment).items()
    ]
    for insight in assessment.insight.experiments:
        routes = sme_routes(insight)
        name = f"{insight.experiment.name} on SME"
        data = node_data_builder.GraphNodeData(
            name=name, results=_results(routes, COLOURS), showExpandedSummaryOnGroupNode=True
        )
        quantities += [data] if routes else []
    return quantities


def _results(
    values: Mapping[str, float] | Mapping[str, str], colours: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {
        key: node_data_builder.NodeDataResult(
            value=value, bgColor=colours[str(value)] if colours else None
        )
        for key, value in values.items()
    }
