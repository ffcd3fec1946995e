"""Node data loads in Model Explorer's own package and meets the nodes of the exported graph."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any, cast

import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.atomic import write_json
from etprof.base.process import run_command
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.report_files import write_documents
from etprof.run.load import Run
from etprof.targets.runner import find_host_runner

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from etprof.export.request import ExportedFiles

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ExportedFiles:
    return export_model(ExportRequest("toy_cnn", "fp32", outdir=tmp_path_factory.mktemp("toy")))


@pytest.fixture(scope="module")
def package() -> ModuleType:
    reason = "no Model Explorer; `pip install --group browser` has it"
    return cast("ModuleType", pytest.importorskip("model_explorer", reason=reason))


@pytest.fixture(scope="module")
def nodes(files: ExportedFiles, package: ModuleType) -> dict[str, str]:
    """Labels by id of the graph that Model Explorer draws of the export's edge program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ExecuTorch's own
        from executorch.devtools.etrecord import parse_etrecord

        program = parse_etrecord(str(files.etrecord)).edge_dialect_program
    config = package.config().add_model_from_pytorch("toy", program)
    (graph,) = config.get_model_explorer_graphs(0)["graphs"]
    return {node.id: node.label for node in graph.nodes}


def measure(files: ExportedFiles, run: Path) -> Path:
    """Runs the program twice, as an experiment without and one with SME would."""
    experiments: dict[str, Any] = {}
    for name in ("off", "sme2"):
        folder = run / name
        folder.mkdir(parents=True)
        words = [
            *(find_host_runner(), f"--model={files.pte}", "--iterations=5", "--threads=1"),
            *(f"--etdump={folder / 'a.etdump'}", f"--result={folder / 'r.json'}"),
        ]
        assert run_command([str(word) for word in words]).exit_code == 0
        experiments[name] = {"sme": name, "threads": 1, "etdump": f"{name}/a.etdump", "blocks": []}
    facts = {"name": "toy_cnn", "method": "forward", "path": str(files.pte)}
    write_json(run / "manifest.json", {"schema_version": 1, "platform": "linux", "model": facts})
    metrics = {"schema_version": 1, "times_are_meaningful": True, "experiments": experiments}
    write_json(run / "metrics.json", metrics)
    return run


def test_node_data_loads_and_meets_the_graphs_nodes(
    files: ExportedFiles, package: ModuleType, nodes: dict[str, str], tmp_path: Path
) -> None:
    from dacite import Config, from_dict

    assessment = assess_run(analyze_run(Run.load(measure(files, tmp_path / "run"))))
    paths = write_documents([assessment], tmp_path / "out", ["model-explorer"])
    assert sorted(path.name for path in paths) == [
        f"report_model_explorer_{name}.json"
        for name in ("difference_us", "off_us", "partitions", "sme2_us", "speedup")
    ]
    schema, coloured = package.node_data_builder.GraphNodeData, set()
    config = package.config()
    for path in paths:
        # THEN each file is what the package's own classes describe, and nothing else; groups have
        # names and colours of their own, which its page takes where its Python types say numbers
        is_grouped = path.name.endswith("partitions.json")
        check = Config(strict=True, check_types=not is_grouped)
        data = from_dict(schema, json.loads(path.read_text()), check)
        assert [stop.stop for stop in data.gradient] == ([] if is_grouped else [0, 1])
        assert all(result.bgColor for result in data.results.values()) == is_grouped
        # AND every key is a node of the graph that is drawn
        assert data.results
        assert data.results.keys() <= nodes.keys()
        coloured |= {nodes[key].rpartition(".")[2] for key in data.results}
        config.add_node_data_from_path(str(path)).add_node_data(data.name, data)
    assert len(config.get_transferrable_data()["node_data_sources"]) == 2 * len(paths)
    # AND operators inside the delegate have times of their own
    assert {"convolution", "linear", "mean"} <= coloured
