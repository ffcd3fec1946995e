"""No printed fact is cut, and no page contradicts itself: three runs at every width, and piped."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from docs import json_figures
from hypothesis import given
from hypothesis import strategies as st

from etprof.analysis.findings.commands import command_in
from etprof.analysis.run_analysis import ExperimentAnalysis, analyze_run
from etprof.base.units import format_duration, format_interval, format_ratio, format_ratio_ends
from etprof.bench.matrix import DeviceEntry, MatrixMeasurement, ModelEntry
from etprof.history.store import open_store
from etprof.run.delegation import DelegationReport
from etprof.run.load import Run
from etprof.run.optimization import Optimization
from etprof.run.peaks import Peaks
from etprof.run.program import ExportManifest
from etprof.tables import findings, report
from etprof.views.json_figures import DOCUMENTS
from tests.golden.runs import page_text
from tests.json_numbers import numbers_in, numbers_of, undeclared, without_figure
from tests.known_history import KnownHistory, fill
from tests.known_runs import on_off_run, write_run
from tests.world.host import etprof, simulated_host
from tests.world.reports import write_config
from tests.world.sim_target import SimTarget
from tests.world.spec import SME2_KERNEL, Capabilities, Noise, Operator, RunSpec

if TYPE_CHECKING:
    from pydantic import BaseModel

    from etprof.statistics.summary import BlockedMedian

NOISY = Noise(run=0.02, block=0.08, call=0.05)
HOST = RunSpec(noise=NOISY)
EMULATOR = RunSpec(capabilities=Capabilities(platform="emulator"))
RUNS = {
    "host": (HOST, ["profile", "m.pte"]),
    "emulator": (EMULATOR, ["profile", "m.pte", "--target", "emulator"]),
    "against": (HOST, ["profile", "m.pte", "--against", "a_program_with_a_long_name_fp16.pte"]),
}
WAYS: tuple[list[str], ...] = ([], ["--full"])
WIDTHS = (80, 120, 0)
"""0 is a pipe, of which nobody knows the width."""
NUMBER = r"(?:[−-]?\d[\d.,]*)"
SPEED_UP = re.compile(rf"({NUMBER})×\s+\((?:\d+ %\s+interval\s+)?({NUMBER})×\s+…\s+({NUMBER})×")
TIME = re.compile(rf"({NUMBER})\s+(ns|µs|ms|s)[\s│]+({NUMBER})\s+…\s+({NUMBER})\s+(ns|µs|ms|s)\b")
SCALES = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three runs."""
    folder = tmp_path_factory.mktemp("facts")
    for name in ("m.pte", "a_program_with_a_long_name_fp16.pte"):
        (folder / name).write_bytes(name.encode())
    for name, (spec, words) in RUNS.items():
        with simulated_host(lambda spec=spec, **_: SimTarget(spec)):
            done = etprof(folder, *words, "--blocks", "6", "--out", name)
        assert done.exit_code == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[tuple[str, str, int], str]:
    """What is printed of each run, briefly and in full, by width."""
    return {
        (name, " ".join(way), width): etprof(folder, "analyze", name, *way, columns=width).stdout
        for name in RUNS
        for way in WAYS
        for width in WIDTHS
    }


def value(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def outside(text: str) -> Iterator[str]:
    """Points that are not within the interval behind them."""
    for match in SPEED_UP.finditer(text):
        point, low, high = map(value, match.groups())
        if not low <= point <= high:
            yield match[0]
    for match in TIME.finditer(text):
        point, low, high = (value(match[index]) for index in (1, 3, 4))
        point *= SCALES[match[2]] / SCALES[match[5]]
        # Each is rounded to three digits, in a unit of its own.
        if not low * 0.995 <= point <= high * 1.005:
            yield match[0]


def test_every_point_is_inside_its_interval(pages: dict[tuple[str, str, int], str]) -> None:
    """U3-1: "speedup 1.6× (95 % interval 1.26× … 1.57×)"."""
    seen = 0
    for page, text in pages.items():
        assert list(outside(text)) == [], page
        seen += len(SPEED_UP.findall(text)) + len(TIME.findall(text))
    assert seen > 50


@given(st.floats(0.01, 2000), st.floats(0, 1.5), st.floats(0, 3))
def test_a_speed_up_and_its_ends_are_rounded_together(
    point: float, below: float, above: float
) -> None:
    """U3-1: the point was rounded by half the width, the ends to three digits."""
    low, high = point / (1 + below), point * (1 + above)
    shown = value(format_ratio(point, (high - low) / 2).rstrip("×"))
    least, most = (value(text.rstrip("×")) for text in format_ratio_ends(point, low, high))
    assert least <= shown <= most


@given(st.floats(1, 1e10), st.floats(0, 1), st.floats(0, 1))
def test_a_time_is_inside_its_interval(point: float, below: float, above: float) -> None:
    text = f"{format_duration(point)} {format_interval(point / (1 + below), point * (1 + above))}"
    assert list(outside(text)) == []


def test_the_example_of_the_defect() -> None:
    """U3-1: to the letter."""
    assert format_ratio(1.5524, (1.5670 - 1.2618) / 2) == "1.55×"
    assert format_ratio_ends(1.5524, 1.2618, 1.5670) == ("1.26×", "1.57×")


def cut_places(text: str) -> list[str]:
    """Each `…` that is not between two numbers."""
    plain = re.sub(r"[│┃]", " ", text)
    left = re.sub(rf"({NUMBER}(?:\s*(?:×|ns|µs|ms|s|%|MiB))?)\s+…\s+(?={NUMBER})", r"\1 to ", plain)
    return [left[max(0, place.start() - 30) : place.end() + 10] for place in re.finditer("…", left)]


def test_nothing_is_cut(pages: dict[tuple[str, str, int], str]) -> None:
    """U3-2: "the median latency is 6.03 …", "fewer than 20 …" at 80 columns or in a pipe."""
    for page, text in pages.items():
        assert cut_places(text) == [], page
    assert cut_places("the median latency is 6.03 …") != []


def test_no_command_goes_on_inside_backticks(pages: dict[tuple[str, str, int], str]) -> None:
    """With `--full`, a command took two lines without a backslash, and could not be copied."""
    for page, text in pages.items():
        for line in text.splitlines():
            plain = line.partition("│")[0]
            assert plain.count("`") % 2 == 0, (page, line)


def test_a_table_stays_a_table_and_names_what_it_leaves_out(folder: Path) -> None:
    """U3-4: "operator native_call_mean.out, where portable, calls 1, median …" at 80 columns."""
    texts = {
        width: etprof(folder, "analyze", "host", "--full", columns=width).stdout
        for width in (80, 400)
    }
    assert texts[80].count("┏") == texts[400].count("┏") > 10
    assert "Left out at this width" not in texts[400]
    assert re.findall(r"^Left out at this width: (.*)", texts[80], re.MULTILINE)
    # AND what answers the question goes last
    for dropped in re.findall(r"^Left out at this width: (.*)", texts[80], re.MULTILINE):
        assert not {"mean", "reason", "doubt", "speedup"} & set(dropped.split(", "))
    assert not re.search(r"^  \w+ .*, (where|calls|median|verdict) ", texts[80], re.MULTILINE)


def test_sentences_are_the_same_words_at_every_width(
    pages: dict[tuple[str, str, int], str],
) -> None:
    """U3-2: a reason ended in the middle."""
    for name in RUNS:
        first, second = (
            re.split(r"(?m)Where .* spends|Convolutions and|^F\d", pages[name, "", width])[
                0
            ].split()
            for width in (80, 120)
        )
        assert first == second


def test_one_state_has_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U3-6: "No rule fired." on a page, "No finding." in Markdown, "No check found anything." here."""
    for module in (findings, report):
        monkeypatch.setattr(module, "shown_findings", lambda _: [], raising=False)
    for words in (["analyze", "host"], ["analyze", "host", "--full"]):
        assert "No findings." in etprof(folder, *words).stdout
    assert etprof(folder, "report", "host", "--out", "quiet").exit_code == 0
    assert "No findings." in (folder / "quiet" / "report.md").read_text()
    assert "<p>No findings." in (folder / "quiet" / "report.html").read_text()


def test_two_totals_have_a_bridge(folder: Path) -> None:
    """U3-6: "9.87 µs an inference" and "12.8 µs Method::execute" on one page, and no word between."""
    run = analyze_run(Run.load(folder / "host"))
    text = " ".join(etprof(folder, "analyze", "host", "--full", columns=400).stdout.split())
    apart = [each for each in run.experiments if abs(each.distance) > 0.02]
    assert apart, "no run of this world has two totals: make one noisier"
    for experiment in run.experiments:
        bridge = f"{experiment.name}: {format_duration(known(experiment).median)} is the median"
        assert (bridge in text) == (experiment in apart)


def known(experiment: ExperimentAnalysis) -> BlockedMedian:
    assert experiment.latency is not None
    return experiment.latency.steady


def test_operators_of_one_table_have_names_of_their_own(tmp_path: Path) -> None:
    """U3-6: "Fully Connected GEMM #1" stood twice, of two data types."""
    layers = (
        Operator("Fully Connected (NC, F16) GEMM #1", 10),
        Operator("Fully Connected (NC, PF16) GEMM #1", 10, 0, {SME2_KERNEL: 2}),
        Operator("Convolution (NHWC, PF16) IGEMM #1", 10, 0, {SME2_KERNEL: 2}),
    )
    spec = RunSpec(
        operators=dict.fromkeys(("sme2", "sme1", "off"), layers),
        capabilities=Capabilities(platform="emulator"),
    )
    (tmp_path / "m.pte").write_bytes(b"program")
    with simulated_host(lambda **_: SimTarget(spec)):
        text = etprof(tmp_path, "profile", "m.pte", "--target", "emulator", "--full").stdout
    table = text.partition("Microkernels by operator")[2].partition("└")[0]
    names = [line.split("│")[1].strip() for line in table.splitlines() if line.startswith("│")]
    assert [name for name in names if name] == [
        "Fully Connected (NC, F16) GEMM #1", "Fully Connected (NC, PF16) GEMM #1",
        "Convolution IGEMM #1",
    ]  # fmt: skip


def test_a_suggestion_can_be_pasted_and_is_new(folder: Path) -> None:
    """M3-1: a suggestion was the command just run; U3-3: or had a placeholder."""
    for name in RUNS:
        text = etprof(folder, "analyze", name).stdout
        assert not re.search(r"^ *(Next: )?etprof (export|profile)( MODEL.*)?$", text, re.MULTILINE)
    assert command_in("count with `etprof profile MODEL --target emulator`") is None
    assert command_in("see `etprof export`, then `etprof doctor`") == "etprof doctor"


@pytest.fixture(scope="module")
def documents(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The JSON of the three runs, of comparisons, and of several runs, by the command's name."""
    # AND a run of a phone, with a description of its program
    write_run(folder / "phone", on_off_run())
    config = write_config(folder, folder / "m.pte", {"kind": "linux"}, ("off", "sme2"), counts=True)
    commands: dict[str, list[list[object]]] = {
        "analyze": [["analyze", name, "--json"] for name in (*RUNS, "phone")],
        "compare": [
            ["compare", "host", "against", "--json"],
            ["compare", "host:linux_off", "against:linux_off_m", "--json"],
        ],
        "report": [["report", "host", "against", "--out", "both", "--json"]],
        "run --dry-run": [["run", config, "--dry-run", "--json"]],
    }
    parsed: dict[str, list[dict[str, Any]]] = {}
    for command, lines in commands.items():
        for words in lines:
            done = etprof(folder, *words)
            assert done.exit_code == 0, f"{words}{done.stderr}"
            parsed.setdefault(command, []).append(json.loads(done.stdout))
    return parsed


def test_every_number_in_json_has_unit_and_basis(
    documents: dict[str, list[dict[str, Any]]],
) -> None:
    """U3-5: `category_totals_ms` was a sum over 99 executions, and no page said so."""
    for command, parsed in documents.items():
        for document in parsed:
            assert undeclared(command, document) == []
            assert len(list(numbers_in(document))) > 10
    for figure in (figure for figures in DOCUMENTS.values() for figure in figures):
        assert figure.unit, figure
        assert figure.basis, figure
        for ending in ("ns", "ms", "bytes", "bits"):
            if figure.path.rstrip("[]").endswith(f"_{ending}"):
                assert figure.unit == ending, figure


@pytest.mark.parametrize(
    ("command", "under", "record"),
    [
        ("export", ("manifest",), ExportManifest), ("export", ("delegation",), DelegationReport),
        ("optimize", (), Optimization), ("calibrate --peaks", (), Peaks),
    ],
)  # fmt: skip
def test_every_number_of_a_record_in_json_is_declared(
    command: str, under: tuple[str, ...], record: type[BaseModel]
) -> None:
    """U3-5: also those that no run here has; and nothing is declared that is not there."""
    paths = {(*under, *path) for path in numbers_of(record)}
    assert without_figure(command, paths) == []
    figures = [f for f in DOCUMENTS[command] if f.path.startswith(".".join(under))]
    declared = {tuple(f.path.replace("[]", ".[]").split(".")) for f in figures}
    assert declared == paths


def test_every_number_of_the_history_in_json_is_declared(tmp_path: Path) -> None:
    """U3-5: also those of many runs."""
    store = open_store(tmp_path / "h.sqlite")
    fill(store, KnownHistory(commits=9, devices=("Phone A",), precisions=("int8",)))
    store.close()
    # What is accepted and pinned is listed in words.
    fewest_numbers = {
        "list": 3, "show 7": 3, "check": 3, "changes": 3, "noise": 3, "accept 7 --why known": 2,
        "accept": 1, "pin good 7": 2, "pin": 1, "pin good --remove": 2, "export all.json": 2,
    }  # fmt: skip
    for action, fewest in fewest_numbers.items():
        done = etprof(tmp_path, "history", *action.split(), "--store", "h.sqlite", "--json")
        document = json.loads(done.stdout)
        assert undeclared(f"history {action.split()[0]}", document) == [], action
        assert len(list(numbers_in(document))) >= fewest, action


def test_every_number_of_a_planned_benchmark_in_json_is_declared() -> None:
    """U3-5: also those of settings that no matrix here has."""
    parts: dict[str, type[BaseModel]] = {
        "model": ModelEntry, "device": DeviceEntry, "measurement": MatrixMeasurement,
    }  # fmt: skip
    paths = {
        ("runs", "[]", part, *path) for part, record in parts.items() for path in numbers_of(record)
    }
    assert without_figure("bench --dry-run", paths) == []


def points_in(value: Any) -> Iterator[tuple[float, float, float]]:  # noqa: ANN401 - any JSON
    """Yields each point that has an interval, with its ends."""
    if isinstance(value, dict):
        for name, point in value.items():
            low, high = value.get(f"{name}_low"), value.get(f"{name}_high")
            if low is not None and high is not None:
                yield point, low, high
            yield from points_in(point)
        ends = value.get("interval")
        if isinstance(ends, dict):
            (point,) = (value[name] for name in ("median", "speed_up", "gain_ns") if name in value)
            yield point, ends["low"], ends["high"]
    elif isinstance(value, list):
        for item in value:
            yield from points_in(item)


def test_every_point_in_json_is_inside_its_interval(
    documents: dict[str, list[dict[str, Any]]],
) -> None:
    """U3-1: a program that reads the JSON sees what people see."""
    points = [point for parsed in documents.values() for point in points_in(parsed)]
    assert [(low, at, high) for at, low, high in points if not low <= at <= high] == []
    assert len(points) > 100


def sides_of(analysis: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """Yields each comparison with the experiment of each of its sides, and the side's name."""
    for comparison in analysis["comparisons"]:
        for side in ("baseline", "candidate"):
            yield comparison, analysis["experiments"][comparison[side]["experiment"]], side


def test_json_says_a_thing_once_however_often_it_says_it(
    documents: dict[str, list[dict[str, Any]]],
) -> None:
    """U3-5, U3-6: one page, two figures; the sums of two runs could not be set side by side."""
    seen = 0
    for analysis in (parsed for parsed in documents["analyze"] if parsed["times_are_meaningful"]):
        for name, experiment in analysis["experiments"].items():
            means_ms = experiment["category_means_ms"]
            assert analysis["category_means_ms"][name] == means_ms
            assert (
                analysis["category_totals_ms"][name] == experiment["category_totals_ms"] == means_ms
            )
            assert analysis["executions"][name] == experiment["executions"]
            assert sum(means_ms.values()) == pytest.approx(experiment["execute_mean_ns"] / 1e6)
            assert experiment["execute_total_ms"] == experiment["execute_mean_ns"] / 1e6
            parts = [*experiment["operators"], *experiment["overheads"]]
            assert sum(part["mean_ns"] for part in parts) == pytest.approx(
                experiment["execute_mean_ns"]
            )
        for comparison, experiment, side in sides_of(analysis):
            seen += 1
            whole_ns = comparison["waterfall"][f"{side}_ns"]
            assert whole_ns == pytest.approx(experiment["execute_mean_ns"])
            for category, change in comparison["categories"].items():
                mean_ns = experiment["category_means_ms"][category] * 1e6
                assert change[f"{side}_ns"] == pytest.approx(mean_ns)
            means = {row["label"]: row["mean_ns"] for row in experiment["operators"]}
            labels = [row[f"{side}_label"] for row in comparison["operators"]]
            assert set(means) <= set(labels)
            for row in comparison["operators"]:
                if row[f"{side}_label"] in means:
                    assert row[f"{side}_ns"] == pytest.approx(means[row[f"{side}_label"]])
    assert seen > 6


def test_csv_has_the_figures_of_the_json(folder: Path) -> None:
    """U3-5: `total_ns` in CSV is a sum, which is declared and goes; all else is in both."""
    assert etprof(folder, "report", "host", "--format", "csv,json", "--out", "twins").exit_code == 0
    document = json.loads((folder / "twins/report.json").read_text())
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    with (folder / "twins/report_operators.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            rows[row["experiment"]].append(row)
    declared = report.DECLARED["operators"]
    deprecated = [column.name for column in declared.columns if column.goes_with]
    assert deprecated == ["total_ns"]
    for name, experiment in document["experiments"].items():
        assert experiment["operators"]
        for row, record in zip(rows[name], experiment["operators"], strict=True):
            assert set(row) == {*record, "experiment", *deprecated}
            numbers = {key: number for (key,), number in numbers_in(record)}
            assert {key: float(row[key]) for key in numbers} == numbers


@pytest.mark.parametrize("page", ["terminal", "HTML"])
def test_a_page_and_its_json_say_the_same_figure(
    folder: Path, documents: dict[str, list[dict[str, Any]]], page: str
) -> None:
    """U3-6: 9.87 µs on one and 12.8 µs on the other."""
    for name, document in zip(RUNS, documents["analyze"], strict=False):
        text = (
            page_text((folder / name / "report.html").read_text("utf-8"))
            if page == "HTML"
            else etprof(folder, "analyze", name, "--full", columns=400).stdout
        )
        if not document["times_are_meaningful"]:
            assert not list(TIME.finditer(text))
            continue
        for experiment in document["experiments"].values():
            steady = experiment["latency"]["steady_ns"]
            ends = format_interval(steady["interval"]["low"], steady["interval"]["high"])
            assert re.search(rf"{format_duration(steady['median'])}\W+{re.escape(ends)}", text)
        for comparison in document["comparisons"]:
            latency = comparison["latency"]
            ends = latency["interval"]
            half_width = (ends["high"] - ends["low"]) / 2
            assert format_ratio(latency["speed_up"], half_width) in text
        assert any(has_operators(text, comparison) for comparison in document["comparisons"])


def has_operators(text: str, comparison: dict[str, Any]) -> bool:
    """Whether a page has each operator's times on both sides."""
    cells = (
        [format_duration(row[f"{side}_ns"]) for side in ("baseline", "candidate")]
        for row in comparison["operators"]
    )
    return all(re.search(r"\W+".join(map(re.escape, pair)), text) for pair in cells)


def test_the_page_of_json_lists_what_is_declared() -> None:
    """Its table of fields named neither unit nor basis."""
    page = json_figures.PAGE.read_text("utf-8")
    assert json_figures.updated(page) == page, "run `python -m docs.json_figures`"
    assert page.count("| per inference |") > 50
