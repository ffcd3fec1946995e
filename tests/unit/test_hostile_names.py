"""S3, S7: a run of hostile names, seen through every view: nothing unfit, one name everywhere."""

from __future__ import annotations

import csv
import html
import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest
from sqlalchemy import update

import etprof
from etprof.base.text import clean
from etprof.cli import main
from etprof.dashboard.export import export_site
from etprof.etdump.reader import events_frame, load_etdump
from etprof.history.schema import Run as StoredRun
from etprof.history.store import open_store
from etprof.views.markdown import escape
from tests.dashboard_server import serving
from tests.known_runs import Experiment, Op, Run, launch, write_run

LABELS: Final = (
    "\x1b[2J\x1b]0;owned\x07",
    "txt\u202egpj.exe",
    "one\nline, another\r",
    "</script><script>alert(1)</script>",
    "[red]marked[/red] :smile:",
    "=1+1",
    "@all see #1, GH-2, https://evil.example and www.evil.example",
    "a|b`c`![x](//y)<!-- *d* &#64;all",
    "in\u200bvis\u2028ible\U000e0041\ufe0f\u3164",
    "z" + "\u0301" * 40,
    "\x9b31m\x7f",
)
EXPERIMENT: Final = "off\x1b[1m\u202e"
OTHER: Final = "[bold]on\n"
MODEL: Final = "model\u202e\n[bold]x[/bold] @all"
DEVICE: Final = "CPU\x1b]0;x\x07\u2066"
BRANCH: Final = "branch\u202e@all #3"
MODULE: Final = "stem\x1b[31m.conv"
PROMPT: Final = "Once\nupon\u202e a time"
_UNFIT: Final = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
_FORMATS: Final = "html,md,json,csv,parquet,perfetto,chrome,model-explorer,hud"


def make_run(folder: Path, factor: float = 1.0) -> Path:
    """Writes a run of which every name is hostile."""
    ops = [Op(label, 10 + i, 0) for i, label in enumerate(LABELS)]
    ops.append(Op("Softmax (NC, F32) #1", 9, 0))  # says whose words the others are
    ops.append(Op("Convolution (NHWC, F32) IGEMM #1", 9, 2))
    ops.append(Op("native_call_\x1b[31m\u202e.out", 5, 1))
    sides = [
        Experiment(EXPERIMENT, ops, latency_us=[factor * (400 + i % 3) for i in range(10)]),
        Experiment(OTHER, ops, sme="sme2", latency_us=[300 + i % 3 for i in range(10)]),
    ]
    source = {"file": "/x/net\u202e.py", "line": 7, "code": "x\x1b = 1"}
    origin = {"module_path": MODULE, "module_type": "Conv2d", "source": source}
    operator = {"name": "c\u202e", "operator": "x\x1b.default", "macs": 8, "origin": origin}
    nodes = [{"kind": "Conv2d", "operators": ["c\u202e"], "attribution": "exact", "macs": 8}]
    delegate = {"name": "d", "backend": "B\x1b", "instruction": 2, "nodes": nodes}
    report = {
        "schema_version": 1, "model": MODEL,
        "methods": {"forward": {"operators": [operator], "delegates": [delegate]}},
    }  # fmt: skip
    state = {"governor": "g\x1b", "temperatures_c": {"s\u202e": 40.0}}
    failed = {**launch(EXPERIMENT, 3, state, state), "error": "lost\x1b\nthe device"}
    run = write_run(folder, Run(sides, platform="linux", delegation=report, launches=[failed]))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["model"] |= {"name": MODEL, "label": MODEL, "precision": "fp16\x1b"}
    manifest["cpu"]["model_name"] = DEVICE
    manifest["target"] |= {"system": "Linux\x1b", "model": DEVICE}
    manifest |= {"git": {"commit": "c\x1b", "branch": BRANCH, "dirty": False},
                 "notes": ["note\x1b[2J"], "pins": {"torch\u202e": "2\x1b"},
                 "platform": "linux", "created_at": f"2026-11-2{int(factor)}T05:00:00+00:00"}  # fmt: skip
    (run / "manifest.json").write_text(json.dumps(manifest))
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["experiments"][EXPERIMENT]["generated"] = {
        "prompt_tokens": [1], "tokens": [2], "prefill_method": "p\x1b", "decode_method": "d",
        "prefilled_tokens": 1, "prompt": PROMPT, "text": "\x1b[2J",
    }  # fmt: skip
    (run / "metrics.json").write_text(json.dumps(metrics))
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("hostile") / "run\x1b[2J")


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "2000")  # so that tables fold no name


def is_unfit(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind in _UNFIT or character in "\ufe0f\u3164\xa0"


def check_text(text: str, where: object = "") -> str:
    """Asserts that a text shows nothing that a terminal or a reader would be fooled by."""
    unfit = {c for c in text if is_unfit(c)} - {"\n", "\r"}
    assert not unfit, (where, {hex(ord(c)) for c in unfit})
    assert not re.search("\u0301{5}", text), where
    return text


def check_files(folder: Path, inside: Path | None = None) -> dict[str, str]:
    found = {}
    for path in folder.rglob("*") if inside is None else inside.rglob("*"):
        if path.suffix in {".html", ".md", ".json", ".csv", ".js", ".css"}:
            found[path.name] = check_text(path.read_bytes().decode(), path.name)
    return found


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    capsys.readouterr()
    code = main([str(word) for word in words])
    printed = capsys.readouterr()
    check_text(printed.err, words)
    return code, check_text(printed.out, words)


def joined(text: str) -> str:
    """Undoes folding and frames of a terminal's tables."""
    return re.sub(r"[\s│┃]+", "", text)


def test_reports_of_all_formats_show_the_same_names(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, "report", run, "--format", _FORMATS, "--out", tmp_path / "out")[0] == 0
    files = check_files(tmp_path / "out")
    page = files["report.html"]
    assert page.count("<script") == 1
    table = [*csv.DictReader(files["report_operators.csv"].splitlines())]
    told = json.loads(files["report.json"])
    trace = (tmp_path / "out" / "report.perfetto-trace").read_bytes()
    frame = pd.read_parquet(tmp_path / "out" / "report_operators.parquet")
    chrome = {
        event["name"] for event in json.loads(files["report_chrome_trace.json"])["traceEvents"]
    }
    operators = told["experiments"][clean(EXPERIMENT)]["operators"]
    for raw in LABELS:
        name = clean(raw)
        assert name in {row["label"] for row in operators}
        assert name in set(frame["label"])
        assert name in chrome
        assert name.encode() in trace
        assert html.escape(name).replace("&#x27;", "&#39;") in page.replace("&#34;", "&quot;")
        assert escape(name) in files["report.md"]
        assert {row["label"].removeprefix("'") for row in table} >= {name}
    assert not any(cell.startswith("=") for row in table for cell in row.values())
    for name in (MODEL, EXPERIMENT, DEVICE, MODULE):
        assert html.escape(clean(name)) in page
        assert escape(clean(name)) in files["report.md"]


def test_json_has_the_bytes_of_changed_names_only(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(call(capsys, "analyze", run, "--json")[1])
    raws = {name: text.encode().decode("unicode_escape").encode("latin-1")
            for name, text in told["raw_names"].items()}  # fmt: skip
    expected = {clean(raw): raw.encode() for raw in (*LABELS, MODEL, EXPERIMENT)}
    assert {
        name: raw for name, raw in expected.items() if raw.decode() != name
    }.items() <= raws.items()
    assert "=1+1" not in raws
    # AND a prompt, which is no name, is all there
    assert told["experiments"][clean(EXPERIMENT)]["generation"]["prompt"] == PROMPT


@pytest.mark.slow
def test_commands_print_nothing_unfit(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = call(capsys, "analyze", run, "--top", 50, "--out", run.parent / "tables")
    assert code == 0
    for raw in LABELS:
        assert joined(clean(raw)) in joined(text)
    check_files(run.parent / "tables")
    code, text = call(capsys, "compare", run, run, "--top", 50)
    assert code == 0
    assert joined(clean(EXPERIMENT)) in joined(text)
    assert joined(clean(OTHER)) in joined(text)
    assert call(capsys, "compare", run, run, "--json")[0] == 0
    code, text = call(capsys, "validate", run)
    assert code == 1  # no hashes, and a failed launch
    assert joined(r"failed: lost\x1b\nthe device") in joined(text)
    assert call(capsys, "validate", run, "--json")[0] == 1


def test_frames_have_the_same_names(run: Path) -> None:
    loaded = etprof.load_run(run)
    assert loaded.model == clean(MODEL)
    assert clean(EXPERIMENT) in loaded.experiments
    labels = set(loaded.operators()["label"])
    assert {clean(raw) for raw in LABELS} <= labels
    dump = load_etdump(next(run.rglob("*.etdump")))
    assert {raw.encode() for raw in LABELS} <= set(dump.raw_names)
    assert {clean(raw) for raw in LABELS} <= set(events_frame(dump)["delegate_debug_id_str"])


@pytest.mark.slow
def test_a_history_and_its_dashboard_show_nothing_unfit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "h.sqlite"
    runs = [make_run(tmp_path / f"r{i}\x1b", factor) for i, factor in enumerate((1, 2), start=1)]
    assert call(capsys, "history", "add", *runs, "--store", store)[0] == 0
    for words in (["list"], ["show", "1"], ["show", "1", "--full"], ["changes"], ["noise"], ["noise", "--json"],
                  ["pin", "base\u202e"], ["pin", "base", "1"], ["pin"],
                  ["show", "nothing\x1b\u202e"],
                  ["check", "--baseline", "window:1", "--format", "json"],
                  ["check", "--baseline", "window:1"]):  # fmt: skip
        call(capsys, "history", *words, "--store", store)
    flags = ("--baseline", "window:1", "--format", "markdown", "--store", store)
    comment = call(capsys, "history", "check", *flags)[1]
    assert escape(clean(MODEL)) in comment
    assert not re.search(r"@\w|(?<!&)#\d|GH-\d|://|www\.", comment)
    for ending in ("json", "parquet"):
        target = tmp_path / f"export.{ending}"
        assert call(capsys, "history", "export", target, "--store", store)[0] == 0
        other = tmp_path / f"{ending}.sqlite"
        assert call(capsys, "history", "import", target, "--store", other)[0] == 0
        assert clean(DEVICE) in joined(
            call(capsys, "history", "list", "--full", "--store", other)[1]
        )
    exported = check_text((tmp_path / "export.json").read_text())
    kept = json.loads(exported)["runs"][0]
    assert kept["model"] == clean(MODEL)
    assert clean(MODEL) in kept["raw"]["raw_names"]
    check_site(store, tmp_path / "site")


def check_site(path: Path, folder: Path) -> None:
    """Every exported page, and some that are served."""
    with open_store(path, create=False) as store:
        export_site(store, folder)
        pages = check_files(folder)
        assert html.escape(clean(MODEL)) in "".join(pages.values())
        with serving(store) as served:
            for view in ("", "trend", "models", "failures", "run?id=1", "report?id=1",
                         "compare?baseline=1&candidate=2", "run?id=%1b%e2%80%ae"):  # fmt: skip
                check_text(served.ask(f"/{view}").text, view)


@pytest.mark.slow
def test_a_strangers_store_is_cleaned_when_it_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h.sqlite"
    run = write_run(tmp_path / "r", Run([Experiment("e", [Op("x", 5)])]))
    with open_store(path) as store:
        store.add_run_directory(run)
        values: dict[str, Any] = {"model": MODEL, "device": DEVICE, "pins": {"p\x1b": "\u202e"}}
        store.write(lambda session: session.execute(update(StoredRun).values(**values)))
    text = call(capsys, "history", "list", "--full", "--store", path)[1]
    assert clean(DEVICE) in joined(text)
    assert r"p\x1b \u202e" in call(capsys, "history", "show", "1", "--full", "--store", path)[1]
    check_site(path, tmp_path / "site")


def test_an_etdump_alone_with_a_hostile_name(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a\x1b[2Jb\n.etdump"
    source.write_bytes(next(run.rglob("*.etdump")).read_bytes())
    code, text = call(capsys, "analyze", source)
    assert code == 0
    assert clean("a\x1b[2Jb\n") in text
    assert call(capsys, "report", source, "--out", tmp_path / "out\x1b")[0] == 0
    check_files(tmp_path / "out\x1b")


def test_errors_name_files_without_their_tricks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = tmp_path / "a\x1b[2Jb\netprof: all is well\u202e"
    for words in (["analyze", name], ["run", name], ["report", name], ["history", "import", name],
                  ["profile", name, "--target", "local"], ["validate", name], ["nonsense\x1b"]):  # fmt: skip
        capsys.readouterr()
        assert main([str(word) for word in words]) in {2, 4}
        told = check_text(capsys.readouterr().err, words)
        assert not re.search("^etprof: all is well", told, re.MULTILINE)


def test_two_experiments_that_look_the_same_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    side = Experiment("a\n", [Op("x", 5)])
    run = write_run(tmp_path / "r", Run([side, replace(side, name="a\\n")]))
    assert main(["analyze", str(run)]) == 4
    assert "experiments: Value error, two of its names look the same" in capsys.readouterr().err
