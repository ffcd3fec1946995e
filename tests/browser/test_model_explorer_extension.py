"""Model Explorer itself loads etprof's extension, draws a program and a run, and colours it."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from typing import TYPE_CHECKING, Any, cast

import pytest

from etprof.base.process import run_command
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from tests.world.host import etprof

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etprof.export.request import ExportedFiles

    Command = Callable[..., Any]

pytestmark = pytest.mark.browser
QUICK = ("--blocks", "2", "--iterations", "5", "--warmup", "1")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ExportedFiles:
    return export_model(ExportRequest("toy_cnn", "fp32", outdir=tmp_path_factory.mktemp("toy")))


@pytest.fixture(scope="module")
def run(files: ExportedFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of this host, which has no SME2."""
    folder = tmp_path_factory.mktemp("measured")
    done = etprof(folder, "profile", files.pte, "--out", "run", *QUICK)
    assert done.exit_code == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def command(files: ExportedFiles) -> Command:
    """What Model Explorer's page asks its server for."""
    del files  # made first: ExecuTorch cannot be imported by halves
    reason = "no Model Explorer; `pip install --group browser` has it"
    extensions = pytest.importorskip("model_explorer.extension_manager", reason=reason)
    manager = extensions.ExtensionManager(["etprof.model_explorer"])
    with warnings.catch_warnings(action="ignore"):  # of what the other extensions import
        manager.load_extensions()
    assert {"etprof", "etprof_run"} <= {each["id"] for each in manager.get_extensions_metadata()}

    def send(extension: str, name: str, path: object, **values: object) -> Any:  # noqa: ANN401
        words = {"extensionId": extension, "cmdId": name, "modelPath": str(path), **values}
        # As the server does: what is no JSON would be found here.
        return json.loads(json.dumps(manager.run_cmd(words)))

    return send


def draw(command: Command, path: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The graph by modules, and the one by delegates."""
    (collection,) = command("etprof", "convert", path, settings={})["graphCollections"]
    assert collection["label"] == "forward"
    modules, delegates = collection["graphs"]
    return modules, delegates


def colour(command: Command, path: object, run: object = "") -> dict[str, Any]:
    values = {"graphId": "by module", "configValues": {"run": str(run)}}
    return cast("dict[str, Any]", command("etprof_run", "run", path, **values))


def test_a_program_is_drawn_by_modules_and_by_delegates(
    command: Command, files: ExportedFiles
) -> None:
    modules, delegates = draw(command, files.pte)
    nodes = {each["id"]: each for each in modules["nodes"]}
    assert len(nodes) == len(modules["nodes"])
    stem = nodes["aten_convolution_default"]
    assert (stem["label"], stem["namespace"]) == ("convolution", "stem")
    facts = {each["key"]: each["value"] for each in stem["attrs"]}
    assert facts["delegate"] == "delegate 0 (XnnpackBackend)"
    assert facts["source"].startswith("model.py:")
    # No edge leads to a node that is not there, which the page would refuse.
    for graph in (modules, delegates):
        known = {each["id"] for each in graph["nodes"]}
        edges = [e["sourceNodeId"] for each in graph["nodes"] for e in each["incomingEdges"]]
        assert edges
        assert set(edges) <= known
    places = {each["namespace"] for each in delegates["nodes"]}
    assert {"delegate 0 (XnnpackBackend)", "outside delegates"} <= places


def test_partitions_and_quantised_clusters_are_coloured(
    command: Command, files: ExportedFiles, tmp_path: Path
) -> None:
    """M3-6: neither was."""
    modules, delegates = draw(command, files.pte)
    colours = {
        each["id"]: (each["style"] or {}).get("backgroundColor") for each in modules["nodes"]
    }
    assert colours["aten_convolution_default"] != colours["aten_mean_dim"] == "#bdbdbd"
    boxes = {
        each["namespaceRegex"]: each["backgroundColor"] for each in delegates["groupNodeConfigs"]
    }
    assert boxes["^outside\\ delegates$"] == "#bdbdbd"
    # AND the program alone is coloured by its export
    (parts,) = colour(command, files.pte)["result"]
    assert parts["results"]["aten_mean_dim"] == {
        "value": "outside delegates", "bgColor": "#bdbdbd", "textColor": None,
    }  # fmt: skip
    quantised = export_model(ExportRequest("toy_cnn", "int8", outdir=tmp_path))
    (collection,) = command("etprof", "convert", quantised.pte, settings={})["graphCollections"]
    *_, clusters = collection["graphs"]
    assert clusters["id"] == "by quantised cluster"
    places = {each["namespace"] for each in clusters["nodes"]}
    assert "cluster 0: convolution, relu" in places
    names = [each["name"] for each in colour(command, quantised.pte)["result"]]
    assert names == ["partitions", "quantised clusters"]


def test_a_run_has_times_and_routes_at_its_nodes(
    command: Command, files: ExportedFiles, run: Path
) -> None:
    recorded = min(run.glob("*/*.etdump"))
    modules, delegates = draw(command, recorded)
    nodes = {each["id"]: each for each in modules["nodes"]}
    facts = nodes["aten_convolution_default_2"]["attrs"]
    (told,) = [each["value"] for each in facts if "GEMM" in each["key"]]
    assert "µs (" in told
    assert "SME excluded" in told
    # Sums of each delegate call stand at its group.
    groups = delegates["groupNodeAttributes"]
    assert {"delegate 0 (XnnpackBackend)", "outside delegates"} <= groups.keys()
    assert groups.keys() <= {each["namespace"] for each in delegates["nodes"]}
    # AND the run colours its own graph, and the program's when it is named
    own = colour(command, recorded)
    assert own == colour(command, files.pte, run)
    assert own["error"] == ""
    times, routes, parts = own["result"]
    assert parts["name"] == "partitions"
    assert times["name"].endswith(" us")
    assert times["results"].keys() | routes["results"].keys() <= nodes.keys()
    assert {each["value"] for each in routes["results"].values()} == {"excluded"}


def test_what_cannot_be_read_is_said(
    command: Command, files: ExportedFiles, run: Path, tmp_path: Path
) -> None:
    assert "stands in no run directory" in colour(command, tmp_path / "x.etdump")["error"]
    assert "stands in no run directory" in colour(command, files.pte, "/nowhere/x\n\x1b")["error"]
    alone = tmp_path / "alone.pte"
    shutil.copy2(files.pte, alone)
    with pytest.raises(Exception, match=r"etprof export"):
        draw(command, alone)
    beside = tmp_path / "alone.pte.delegation.json"
    beside.write_text('{"model": 1')
    with pytest.raises(Exception, match="damaged"):
        draw(command, alone)
    copied = tmp_path / "copied"
    shutil.copytree(run, copied)
    (copied / "delegation.json").unlink()
    assert "what its program is made of" in colour(command, files.pte, copied)["error"]


def test_names_of_strangers_are_cleaned(
    command: Command, files: ExportedFiles, tmp_path: Path
) -> None:
    report = files.pte.with_name(f"{files.pte.name}.delegation.json").read_text()
    document = json.loads(report)
    first = document["methods"]["forward"]["operators"][0]
    first["operator"], first["delegate"] = "<script>\u202e", 10**9
    (tmp_path / "x.pte.delegation.json").write_text(json.dumps(document))
    modules, _ = draw(command, tmp_path / "x.pte")
    (label,) = [each["label"] for each in modules["nodes"] if each["id"] == first["name"]]
    assert label == "<script>\\u202e"
    (facts,) = [each["attrs"] for each in modules["nodes"] if each["id"] == first["name"]]
    assert {"key": "delegate", "value": "delegate 1000000000"} in facts


def test_the_pages_command_serves_it(files: ExportedFiles, tmp_path: Path) -> None:
    """The command of docs/reading_a_report.md, in a process of its own; ended by its own id."""
    pytest.importorskip("model_explorer")
    script = f"""
import os, sys, threading, time, urllib.request
def look():
    for _ in range(300):
        try:
            print(urllib.request.urlopen("http://localhost:8093/api/v1/get_extensions").read().decode(), flush=True)
            os._exit(0)
        except OSError:
            time.sleep(0.1)
    os._exit(1)
threading.Thread(target=look, daemon=True).start()
sys.argv = ["model-explorer", {str(files.pte)!r}, "--extensions=etprof.model_explorer", "--port=8093",
            "--no_open_in_browser", "--skip_health_check"]
from model_explorer import cmdline
cmdline.main(cmdline.args)
"""
    done = run_command([sys.executable, "-c", script], folder=tmp_path, timeout_s=60)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert '"etprof_run"' in done.stdout
