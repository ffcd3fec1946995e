"""The Python API: stable names, documented columns, the numbers of the reports."""

from __future__ import annotations

import html
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

import etprof
from etprof.api import COLUMNS
from etprof.base.errors import InputFileError, UsageError
from etprof.base.process import run_command
from tests.known_etdumps import US, foreign_etdump
from tests.known_runs import OFF_OPS, ON_OPS, on_off_run, write_run

GUIDE = Path(__file__).parents[2] / "docs" / "python_api.md"


def test_the_page_of_stable_names_has_those_of_the_package() -> None:
    """R011: nothing said which names may be relied on, and how one goes."""
    page = GUIDE.with_name("stability.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`etprof\.([A-Za-z_]+)`", page)) == set(etprof.__all__)
    for name in etprof.__all__:
        assert hasattr(etprof, name)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> etprof.Run:
    kinds = [("Conv2d", "conv"), ("DepthwiseConv2d", "depthwise"), ("Conv2d", "last")]
    nodes = [
        {"kind": kind, "operators": [name], "attribution": "exact", "macs": 800_000}
        for kind, name in kinds
    ]
    operators = [
        {
            "name": name,
            "operator": "convolution.default",
            "macs": 800_000,
            "debug_handle": 7 + i,
            "origin": {"module_path": f"blocks.{i}.conv", "module_type": "Conv2d"},
        }
        for i, (_, name) in enumerate(kinds)
    ]
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": nodes}
    method = {"operators": operators, "delegates": [delegate]}
    report = {"schema_version": 1, "model": "known", "methods": {"forward": method}}
    description = replace(on_off_run(), delegation=report)
    return etprof.load_run(write_run(tmp_path_factory.mktemp("runs") / "r", description))


def test_a_run_describes_itself(run: etprof.Run) -> None:
    assert repr(run) == f"<etprof run {run.source}: android_off, android_sme2>"
    assert (run.model, run.platform, run.times_are_meaningful) == ("known", "android", True)
    assert run.experiments == ("android_off", "android_sme2")


@pytest.mark.parametrize("name", ["operators", "categories", "samples", "findings", "comparisons"])
def test_frames_have_the_documented_columns(run: etprof.Run, name: str) -> None:
    frame = getattr(run, name)()
    assert {column: str(dtype) for column, dtype in frame.dtypes.items()} == COLUMNS[name]
    assert len(frame) > 0


def test_every_declared_column_is_listed() -> None:
    """T16, H3: the lists come from the declarations alone, so that a column is one file."""
    printed = run_command([sys.executable, str(GUIDE.with_name("columns.py"))]).stdout
    assert re.findall(r"^## `(\w+)`", printed, re.MULTILINE) == list(COLUMNS)
    for name, columns in COLUMNS.items():
        section = printed.partition(f"## `{name}`: ")[2].partition("\n## ")[0]
        listed = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+?) \| (.+?) \| \S", section, re.MULTILINE)
        assert {column: dtype for column, dtype, *_ in listed} == columns
        for column, dtype, unit, basis in listed:
            assert (unit != "–") == (basis != "–") == (dtype in {"Int64", "float64"}), column


def test_the_guides_code_runs(
    run: etprof.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a run where the guide has its own
    place = tmp_path / "out_mobilenet_v2" / "runs"
    place.mkdir(parents=True)
    (place / "android").symlink_to(run.source, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the project's own guide
    assert names["both"].verdict == "faster"
    assert (tmp_path / "report.html").is_file()


def test_operators_are_the_description(run: etprof.Run) -> None:
    frame = run.operators()
    means = frame[frame["experiment"] == "android_sme2"].set_index("label")["mean_ns"]
    assert means.to_dict() == {op.label: op.us * US for op in ON_OPS}
    conv = frame[frame["label"] == "Convolution (NHWC, PF16) IGEMM #1"].iloc[0]
    assert (conv["module_path"], conv["macs"], conv["gflops"]) == ("blocks.0.conv", 800_000, 16.0)


@pytest.mark.parametrize("by", ["module", "source", "microkernel"])
def test_rollups_are_complete(
    run: etprof.Run, by: Literal["module", "source", "microkernel"]
) -> None:
    frame = run.rollup(by)
    assert {column: str(dtype) for column, dtype in frame.dtypes.items()} == COLUMNS[
        {"module": "modules", "source": "source_lines", "microkernel": "microkernels"}[by]
    ]
    mine = frame[frame["experiment"] == "android_off"]
    assert mine["mean_ns"].sum() == sum(op.us for op in OFF_OPS) * US
    assert mine["operators"].sum() == len(OFF_OPS)


def test_rollup_by_module_and_microkernel(run: etprof.Run) -> None:
    modules = run.rollup("module").set_index(["experiment", "module"])["mean_ns"]
    assert modules["android_sme2", "blocks.0.conv"] == 100 * US
    kernels = run.rollup("microkernel").set_index(["experiment", "microkernel"])["operators"]
    assert kernels["android_sme2", "PF16 IGEMM"] == 2


def test_categories_close(run: etprof.Run) -> None:
    totals = run.categories().groupby("experiment")["share"].sum()
    assert totals.to_dict() == pytest.approx({"android_off": 1.0, "android_sme2": 1.0})


def test_comparison(run: etprof.Run) -> None:
    found = etprof.compare(run.experiment("android_off"), run.experiment("android_sme2"))
    assert repr(found) == "<etprof comparison android_off → android_sme2: faster>"
    assert found.speed_up == pytest.approx(2.99, abs=0.01)
    assert found.interval is not None
    assert found.p_value == pytest.approx(2 / 2**10)
    frame = found.operators()
    assert len(frame) == len(ON_OPS)
    steps = found.waterfall()
    assert steps["delta_ns"].sum() == (291 - 901) * US
    assert found.categories().set_index("category").loc["Convolution", "speed_up"] == 750 / 210
    for name, table in {
        "operator_changes": frame, "waterfall": steps, "category_changes": found.categories(),
    }.items():  # fmt: skip
        assert list(table.columns) == list(COLUMNS[name])
    assert found.document["name"] == "android_off → android_sme2"


def test_ambiguous_and_unlike_comparisons_are_refused(run: etprof.Run) -> None:
    with pytest.raises(UsageError, match=r"several pairs of experiments .*give run.experiment"):
        etprof.compare(run, run)
    with pytest.raises(UsageError, match="has no experiment 'x'; it has android_off, android_sme2"):
        run.experiment("x")
    with pytest.raises(InputFileError, match="nowhere does not exist"):
        etprof.compare("nowhere", run)


def test_total_for_module_takes_whole_names_and_units(run: etprof.Run) -> None:
    assert run.find_total_for_module("blocks.0.conv", unit="us") == 100
    assert run.find_total_for_module("blocks", unit="us", experiment="android_off") == 750
    assert run.find_total_for_module("blocks.0") == 0.1
    every = run.operators()
    whole_ns = every[every["experiment"] == "android_off"]["mean_ns"].sum()
    whole = run.find_total_for_module("", unit="ns", experiment="android_off")
    assert whole == pytest.approx(whole_ns)
    with pytest.raises(UsageError, match=r"'block' has no operators here; did you mean 'blocks'"):
        run.find_total_for_module("block")


def test_event_blocks_keep_every_duration(tmp_path: Path) -> None:
    path = tmp_path / "x.etdump"
    path.write_bytes(foreign_etdump(executions=3))
    blocks = {block.name: block for block in etprof.load_run(path).event_blocks()}
    assert list(blocks) == ["Default", "Execute"]
    events = {event.name: event for event in blocks["Execute"].events}
    kernel = events["native_call_addmm.out"]
    assert kernel.raw_ns.tolist() == [300 * US, 30 * US, 30 * US, 30 * US]
    assert (kernel.is_delegated, kernel.is_container, kernel.instruction_id) == (False, False, 1)
    assert events["DELEGATE_CALL"].is_container
    assert events["Softmax (NC, F32) #1"].is_delegated
    frame = blocks["Execute"].to_frame()
    assert frame.set_index("name").loc["native_call_addmm.out", "p50_ns"] == 30 * US


def test_events_say_where_their_operators_come_from(run: etprof.Run) -> None:
    """A table of events had names and times only; Inspector's says modules and handles too."""
    frame = run.events("android_off")
    blocks = run.event_blocks("android_off")
    assert len(frame) == sum(len(block.events) for block in blocks)
    assert frame[frame["modules"].notna()]["event_block"].nunique() == 2  # the first inference too
    known = frame[frame["modules"].notna() & (frame["event_block"] == "Execute")].set_index("name")
    rows = run.operators()
    rows = rows[(rows["experiment"] == "android_off") & rows["module_path"].notna()]
    assert len(rows) == 3
    for row in rows.to_dict("records"):
        event = known.loc[row["label"]]
        assert event["modules"] == row["module_path"]
        assert event["operators"] in {"conv", "depthwise", "last"}
        assert event["debug_handles"] == "7" if event["operators"] == "conv" else True
        assert (event["instruction_id"], event["backend"]) == (0, "XnnpackBackend")
    assert not frame[frame["container"]]["modules"].notna().any()


def test_events_without_an_export_have_no_origin(tmp_path: Path) -> None:
    path = tmp_path / "x.etdump"
    path.write_bytes(foreign_etdump(executions=3))
    frame = etprof.load_run(path).events()
    assert set(frame["event_block"]) == {"Default", "Execute"}
    assert frame[["operators", "debug_handles", "modules", "source"]].isna().all(axis=None)


def test_tabular_and_tsv(
    run: etprof.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.print_data_tabular("android_off")
    printed = capsys.readouterr().out
    assert all(op.label in printed for op in OFF_OPS)
    run.save_data_to_tsv(tmp_path / "x.tsv", "android_off")
    lines = (tmp_path / "x.tsv").read_text().splitlines()
    assert lines[0].split("\t") == [
        "name", "label", "class", "delegated", "calls", "median_ns", "mean_ns", "share",
    ]  # fmt: skip
    assert len(lines) == 1 + len(OFF_OPS)
    run.save_html(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")


def test_importing_etprof_imports_nothing_else() -> None:
    code = "import sys, etprof; print('numpy' in sys.modules, 'etprof.api' in sys.modules)"
    assert run_command([sys.executable, "-c", code]).stdout.strip() == "False False"
    with pytest.raises(AttributeError, match="module 'etprof' has no attribute 'nothing'"):
        etprof.nothing  # noqa: B018


def test_names_of_the_api_can_be_completed() -> None:
    """U5: `dir(etprof)` hid what is imported at its first use."""
    assert set(etprof.__all__) <= set(dir(etprof))


def test_notebooks_show_the_report(run: etprof.Run) -> None:
    """U5: nothing but a name was shown."""
    page = run._repr_html_()
    assert page.startswith("<iframe srcdoc=")
    assert all(html.escape(html.escape(op.label)) in page for op in OFF_OPS)
    compared = etprof.compare(run.experiment("android_off"), run.experiment("android_sme2"))
    assert "android_sme2" in compared._repr_html_()
