"""The report's twins carry the same numbers: Markdown, JSON, CSV, Parquet."""

from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import parquet

from etprof import report_files
from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import BuildError, InputFileError, UsageError
from etprof.cli import run_command_line
from etprof.run.load import Run as LoadedRun
from etprof.run.manifest import seal
from etprof.tables.report import report_tables
from etprof.views.files import safe_cell
from etprof.views.formats import format_names
from etprof.views.markdown import escape
from tests.known_etdumps import US
from tests.known_runs import OFF_OPS, ON_OPS, Experiment, Op, Run, analyze, on_off_run, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "r", on_off_run())


def report(*words: object) -> int:
    return run_command_line(["report", *map(str, words)])


def test_default_is_html_and_markdown_in_the_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(run) == 0
    first, *_, html, markdown = capsys.readouterr().out.splitlines()
    assert first.startswith("known, fp16, 1 thread, SME off → SME2: faster, speedup 2.99×")
    assert (html, markdown) == (f"{run}/report.html", f"{run}/report.md")
    text = (run / "report.md").read_text()
    assert text.startswith("# known\nfp16 · xnnpack · android · Cortex-X925 · 2026-11-21\n")
    assert "known, fp16, 1 thread, SME off → SME2: faster, speedup 2.99×" in text
    assert (
        "| Convolution | convolution | 700 µs | 160 µs | −540 µs | 4.38× | 77.7 % | 55.0 % |"
        in text
    )
    assert "| Method::execute |  | 901 µs | 291 µs | −610 µs | – | 100.0 % | 100.0 % |" in text


def test_a_missing_package_stops_its_format_alone(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """M3-2: of ten formats none was written, and the hint named a package that no index has."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    out = tmp_path / "out"
    assert report(run, "--format", "html,csv,parquet,md", "--out", out) == 3
    assert {path.suffix for path in out.iterdir()} == {".html", ".csv", ".md"}
    told = capsys.readouterr().err
    assert "parquet is left out: Parquet needs pyarrow" in told
    assert "`pip install pyarrow`" in told
    # AND where nothing else is asked for, nothing is written
    before = sorted(run.rglob("*"))
    for write in (
        lambda: report(run, "--format", "parquet"),
        lambda: report_files.write_documents(
            [assess_run(analyze_run(LoadedRun.load(run)))], run, ("html", "parquet")
        ),
    ):
        with pytest.raises(BuildError, match=r"Parquet needs pyarrow .*--format csv"):
            write()
        assert sorted(run.rglob("*")) == before


def test_tables_are_the_same_in_every_format(run: Path, tmp_path: Path) -> None:
    assert report(run, "--format", "csv,parquet,json", "--out", tmp_path / "o") == 0
    with (tmp_path / "o" / "report_operator_changes.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    columns = parquet.read_table(tmp_path / "o" / "report_operator_changes.parquet")
    document = json.loads((tmp_path / "o" / "report.json").read_text())
    from_json = document["comparisons"][0]["operators"]
    expected = [(-300.0 * US if "IGEMM #1" in op.label else None) for op in ON_OPS]
    for i, delta in enumerate(expected):
        figures = {
            float(rows[i]["delta_ns"]),
            columns["delta_ns"][i].as_py(),
            from_json[i]["delta_ns"],
        }
        assert len(figures) == 1
        assert delta is None or figures == {delta}
    assert columns.schema.metadata[b"time_unit"] == b"ns"
    about = columns.schema.field("delta_ns").metadata
    assert (about[b"unit"], about[b"basis"]) == ("±ns".encode(), b"per inference")


def test_samples_are_all_there_and_apart(run: Path, tmp_path: Path) -> None:
    report(run, "--format", "csv", "--out", tmp_path / "o")
    with (tmp_path / "o" / "report_samples.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["experiment"] == "android_off"]
    phases = [row["phase"] for row in rows]
    assert {name: phases.count(name) for name in set(phases)} == {
        "first": 10, "warmup": 10, "steady": 90,
    }  # fmt: skip


def test_summary_has_kernel_hints_findings_and_comparisons(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", on_off_run())
    assert run_command_line(["analyze", str(folder), "--quiet"]) == 0
    summary = json.loads((folder / "analysis_summary.json").read_text())
    operators = {
        entry["label"]: entry for entry in summary["experiments"]["android_sme2"]["operators"]
    }
    packed = operators["Convolution (NHWC, PF16) IGEMM #1"]
    assert (packed["kernel_hint"], packed["kernel_grade"], packed["kernel_source"]) == (
        "PF16 IGEMM", "B", "operator name",
    )  # fmt: skip
    depthwise = operators["Convolution (NHWC, PF16) DWConv #1"]
    assert (depthwise["kernel_hint"], depthwise["kernel_grade"]) == (None, None)
    assert depthwise["why_not_sme2"] == (
        "depthwise convolution has NEON microkernels only (true of ExecuTorch 1.5.1)"
    )
    assert summary["comparisons"][0]["latency"]["verdict"] == "faster"
    assert {entry["experiment"] for entry in summary["findings"]} == {"android_off", "android_sme2"}
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x"])
def test_formulas_are_defused(text: str, tmp_path: Path) -> None:
    assert safe_cell(text) == f"'{text}"
    ops = [Op(f"=cmd|{text}", 5), Op("Softmax (NC, F32) #1", 5)]
    analysis = analyze(tmp_path / "r", Run([Experiment("e", ops)]))
    assert report_tables(assess_run(analysis))["operators"].records()[0]["label"] == f"=cmd|{text}"
    folder = tmp_path / "r"
    assert report(folder, "--format", "csv") == 0
    assert "\n=cmd" not in (folder / "report_operators.csv").read_text().replace(",=cmd", "\n=cmd")


def test_numbers_stay_numbers() -> None:
    assert safe_cell(-1.5) == -1.5
    assert safe_cell("Add (ND, F32) #1") == "Add (ND, F32) #1"


def test_markdown_escapes() -> None:
    assert escape("a|b\n<img>`x_y`") == "a\\|b &lt;img&gt;`x_y`"
    assert escape("`a|b`") == "\\`a\\|b\\`"
    assert escape("a`b_c") == "a\\`b\\_c"


def test_emulated_runs_have_no_times_in_any_table(tmp_path: Path) -> None:
    emulated = replace(on_off_run(), platform="emulator", meaningful=False)
    tables = report_tables(assess_run(analyze(tmp_path / "r", emulated)))
    assert len(tables["operators"].rows) == len(OFF_OPS) + len(ON_OPS)
    times = [
        (name, column)
        for name, table in tables.items()
        for record in table.records()
        for column, value in record.items()
        if column.endswith(("_ns", "share", "gflops", "_per_s", "speed_up")) and value is not None
    ]
    assert times == []


def test_emulated_runs_have_no_times_in_json(tmp_path: Path) -> None:
    emulated = replace(on_off_run(), platform="emulator", meaningful=False)
    folder = write_run(tmp_path / "r", emulated)
    assert report(folder, "--format", "json", "--out", tmp_path / "o") == 0

    def timed(value: object, path: str = "") -> list[str]:
        """Paths of all figures that a clock had a part in."""
        if isinstance(value, dict):
            return [name for key, each in value.items() for name in timed(each, f"{path}.{key}")]
        if isinstance(value, list):
            return [name for each in value for name in timed(each, path)]
        is_time = path.endswith(("_ns", "_ms", "share", "gflops", "_per_s", "speed_up"))
        return [path] if is_time and value is not None else []

    document = json.loads((tmp_path / "o" / "report.json").read_text())
    assert document["experiments"]["android_off"]["operators"][0]["label"] == OFF_OPS[0].label
    assert timed(document) == []


def test_emulated_runs_have_no_times_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN an emulated run in which SME2 did nothing, which F10 has evidence for
    ops = [Op("Convolution (NHWC, F16) IGEMM #1", 70), *OFF_OPS[2:]]
    ops += [Op(f"Convolution (NHWC, F16) IGEMM #{i}", 9) for i in range(2, 9)]
    experiments = [Experiment("off", ops), Experiment("sme2", ops, sme="sme2")]
    folder = write_run(tmp_path / "r", Run(experiments, platform="emulator", meaningful=False))
    assert run_command_line(["analyze", str(folder), "--full"]) == 0
    shown = {"terminal": capsys.readouterr().out}
    for name in ("report.html", "report.md"):
        shown[name] = (folder / name).read_text()
    assert all("F10" in text for text in shown.values())
    found = {
        (name, figure.group())
        for name, text in shown.items()
        for figure in re.finditer(r"[0-9.]+ (ns|µs|ms|s|GFLOP/s)\b|[0-9.]+×(?! [0-9])", text)
    }
    assert found == set()


def test_several_runs_get_folders_of_their_own(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / name, replace(on_off_run(), platform=name))
        for name in ("android", "mac")
    ]
    out = tmp_path / "o"
    assert report(*folders, "--format", "html,json", "--out", out) == 0
    files = sorted(path.relative_to(out).as_posix() for path in out.rglob("*.*"))
    both = ["known_fp16_android/report.json", "known_fp16_mac/report.json"]
    assert files == [*both, "report.html", "runs.json"]


def test_reference_and_thresholds(tmp_path: Path, run: Path) -> None:
    reference = write_run(tmp_path / "ref", on_off_run())
    (tmp_path / "t.json").write_text('{"depthwise_share": 1.0}')
    assert report(run, "--reference", reference, "--thresholds", tmp_path / "t.json") == 0
    text = (run / "report.md").read_text()
    assert re.search(r"\| Is its Data Movement share higher\? \|.*\| No, not higher\. \|", text)
    assert "Depthwise" not in text


def test_every_format_can_be_asked_for(run: Path, tmp_path: Path) -> None:
    formats = format_names()
    assert report(run, "--format", ",".join(formats), "--out", tmp_path / "o") == 0
    names = {path.name.split("_model")[0] for path in (tmp_path / "o").iterdir()}
    assert {"report.html", "report.perfetto-trace", "report_chrome_trace.json"} <= names


def test_folded_stacks_add_up_to_the_split(run: Path, tmp_path: Path) -> None:
    """R313: each line is a stack by module; together they are the inference."""
    assert report(run, "--format", "folded,csv", "--out", tmp_path) == 0
    stacks = sorted(tmp_path.glob("*.folded"))
    assert len(stacks) == len(analyze_run(LoadedRun.load(run)).experiments)
    for path, experiment in zip(
        stacks,
        sorted(analyze_run(LoadedRun.load(run)).experiments, key=lambda e: e.name),
        strict=True,
    ):
        times = experiment.split.times
        assert times is not None
        lines = [line.rpartition(" ") for line in path.read_text().splitlines()]
        assert len(lines) == len(experiment.split.entries)
        assert sum(int(line[2]) for line in lines) == pytest.approx(
            times.execute.mean_ns, abs=len(lines)
        )


def test_a_node_without_graph_operators_has_a_stack(tmp_path: Path) -> None:
    """A delegate's node without operators ended in a traceback of the folded stacks."""
    node = {"kind": "Conv2d", "operators": [], "attribution": "exact"}
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": [node]}
    method = {"operators": [], "delegates": [delegate]}
    delegation = {"schema_version": 1, "model": "known", "methods": {"forward": method}}
    run = write_run(tmp_path / "r", replace(on_off_run(), delegation=delegation))
    assert report(run, "--format", "folded", "--out", tmp_path / "o") == 0


def test_what_the_manifest_keeps_as_it_came_is_cleaned_on_the_page(run: Path) -> None:
    """Its config is kept to the letter, and a NUL in it stood on the page."""
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["config"] = {"content": {"target": {"kind": "a\0b"}}}
    path.write_text(json.dumps(manifest))
    assert report(run, "--format", "html,md") == 0
    for name in ("report.html", "report.md"):
        text = (run / name).read_text()
        assert "\0" not in text
    assert r"a\x00b" in (run / "report.html").read_text()


def test_markdown_lists_the_files_of_the_run(run: Path) -> None:
    """R250: what was left is named on the page, where it had been dropped."""
    manifest = json.loads((run / "manifest.json").read_text())
    names = [f"launch_{number:02}.etdump" for number in range(22)]
    manifest["files"] = {name: {"kind": "etdump", "sha256": "0" * 64} for name in names}
    (run / "manifest.json").write_bytes(seal(manifest))
    assert report(run) == 0
    (line,) = [x for x in (run / "report.md").read_text().splitlines() if "Files of the run" in x]
    assert [name.replace("_", "\\_") in line for name in names] == [True] * 20 + [False] * 2
    assert "and 2 more" in line


def test_wrong_words_are_refused(run: Path) -> None:
    with pytest.raises(UsageError, match="--format pdf: give one or more of html, md, chrome"):
        report(run, "--format", "pdf")
    with pytest.raises(InputFileError, match="nowhere does not exist; `etprof profile MODEL` mak"):
        report("nowhere")
