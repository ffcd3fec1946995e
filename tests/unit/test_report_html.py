"""The HTML report is complete, correct and harmless."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import statistics
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from rich.console import Console

from etprof.analysis.assessment import assess_run, assess_runs
from etprof.analysis.split.operators import GROUPS
from etprof.base.html_template import with_code
from etprof.run.load import Run as LoadedRun
from etprof.tables.brief import brief_of
from etprof.views import charts
from etprof.views.formats.html import render_html
from etprof.views.markdown import render_markdown
from etprof.views.terminal import render_report
from tests.etdump_writer import etdump, event_block, write_etdump
from tests.known_etdumps import span
from tests.known_runs import OFF_OPS, Experiment, Op, Run, analyze, on_off_run, write_run

if TYPE_CHECKING:
    from etprof.tables.table import Table

ATTACK = "<img src=x onerror=alert(1)>"
VOID = {"meta", "link", "input", "img", "br"}


class Page(HTMLParser):
    """Collects what the tests ask for, and fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"script", "style"}:
            self.text.append(data)

    @property
    def visible(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    return render_html([assess_run(analyze(folder / "r", on_off_run()))])


def test_headline_has_verdict_interval_and_test(html: str) -> None:
    text = Page(html).visible
    assert (
        "With SME2 the median latency is 301 µs instead of 901 µs: more than noise explains. "
        in text
    )
    assert "2.99× faster" in text
    assert "known, fp16, 1 thread, SME off → SME2: faster, speedup 2.99× (95 % interval" in text
    assert (
        "10 pairs of process launches, signed-rank p = 0.002; speedup is baseline ÷ candidate."
        in text
    )


def test_numbers_are_those_of_the_description(html: str) -> None:
    text = Page(html).visible
    assert "Convolution convolution 700 µs 160 µs −540 µs 4.38× 77.7 % 55.0 %" in text
    assert "Method::execute 901 µs 291 µs −610 µs – 100.0 % 100.0 %" in text
    assert "Convolution (NHWC, PF16) IGEMM #1 400 µs 100 µs −300 µs" in text
    assert "3 operators with 88.8 % of the baseline's time changed to SME" in text
    assert "depthwise convolution has NEON microkernels only" in text


def test_waterfall_bars_start_where_the_last_one_ended(html: str) -> None:
    spans = re.findall(
        r'class="(saved|added|same|total)" style="left:([\d.]+)%;width:([\d.]+)%"',
        html.split('id="r0-waterfall"')[1],
    )
    steps = [(kind, float(left), float(width)) for kind, left, width in spans]
    kinds = [kind for kind, _, _ in steps]
    steps = steps[: kinds.index("total", 1) + 1]
    assert kinds[:5] == ["total", "saved", "saved", "saved", "added"]
    end = steps[0][2]
    for kind, left, width in steps[1:-1]:
        begin = left + width if kind == "saved" else left
        assert begin == pytest.approx(end, abs=0.01)
        end = left if kind == "saved" else left + width
    assert steps[-1][2] == pytest.approx(end, abs=0.01)


def test_slower_is_higher_in_the_chart_of_latencies(html: str) -> None:
    """Mutant 52: the chart stood on its head. SVG counts from above."""
    heights = [
        [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)h0", panel)]
        for panel in re.findall(r'(?s)<svg class="samples".*?</svg>', html)
    ]
    slow, fast = heights
    assert len(slow) == len(fast) > 90
    assert statistics.median(slow) < statistics.median(fast)


def test_nothing_is_loaded_from_anywhere(html: str) -> None:
    page = Page(html)
    links = [
        value
        for _, attributes in page.tags
        for name in ("src", "href", "action", "srcset", "data")
        if (value := attributes.get(name))
    ]
    assert all(link.startswith(("#", "data:,")) for link in links)
    assert "url(" not in html
    assert "@import" not in html


def test_commands_of_findings_are_code_and_nothing_more() -> None:
    """They stood on the page between backticks."""
    assert with_code("do `a <b>` & `c`") == "do <code>a &lt;b&gt;</code> &amp; <code>c</code>"
    assert with_code("odd ` <b>") == "odd ` &lt;b&gt;"


def test_only_our_own_script_may_run(html: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (
        a["content"] for t, a in Page(html).tags
        if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )  # fmt: skip
    assert policy is not None
    assert f"script-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize("render", [render_html, render_markdown])
def test_names_are_data(render: object, tmp_path: Path) -> None:
    # GIVEN a model, an experiment and operators with hostile names
    ops = [*OFF_OPS, Op(ATTACK, 9), Op('"><script>alert(2)</script>', 9), Op("{{ 7 * 7 }}", 9)]
    run = Run([Experiment("e", ops)], model=f"m{ATTACK.replace('/', '')}")
    run_folder = write_run(tmp_path / "r", replace(run, model="m"))
    manifest = run_folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"name": "m"', f'"name": "{ATTACK}"'))
    text = render(assess_runs([LoadedRun.load(run_folder)]))  # type: ignore[operator]
    # THEN they are shown, not run
    assert "<img" not in text
    assert "<script>alert" not in text
    assert "49" not in re.findall(r"{{.*?}}", text)
    if render is render_html:
        assert "{{ 7 * 7 }}" in text
        assert ATTACK in Page(text).visible


def test_platforms_that_are_not_representative_say_so(tmp_path: Path) -> None:
    mac = render_html([assess_run(analyze(tmp_path / "m", replace(on_off_run(), platform="mac")))])
    assert "Not representative. Measured on macOS" in Page(mac).visible
    emulated = replace(on_off_run(), platform="emulator", meaningful=False)
    text = Page(render_html([assess_run(analyze(tmp_path / "e", emulated))])).visible
    assert "Not representative. Measured under emulation" in text
    # THEN no time of it is shown
    assert not re.search(r"\d (µs|ms|ns)\b", text.replace("Memory", ""))


@pytest.mark.parametrize("platform", ["mac", "emulator"])
def test_terminals_say_so_too(tmp_path: Path, platform: str) -> None:
    """R006: pages had the banner, terminals had none."""
    run = replace(on_off_run(), platform=platform, meaningful=platform == "mac")
    assessment = assess_run(analyze(tmp_path / "r", run))
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as captured:
        console.print(render_report(assessment, top=12))
    assert "Not representative. Measured" in captured.get()
    # AND so does the answer of a screen, which is what run, profile and analyze print
    told = [each.text for each in brief_of(assessment).headlines]
    assert any(text.startswith("Not representative. Measured") for text in told)


def test_several_runs_in_one_page(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / name, replace(on_off_run(), platform=name))
        for name in ("android", "mac")
    ]
    page = Page(render_html(assess_runs([LoadedRun.load(each) for each in folders])))
    assert "2 runs" in page.visible
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [str(a.get("href")) for tag, a in page.tags if tag == "a"]
    targets = {link[1:] for link in links if link.startswith("#")}
    assert targets <= set(ids)


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        ({"sme": "sme2"}, "With SME2 the median latency is 301 µs on both sides: that is no"),
        (
            {"threads": 4},
            "With 4 threads the median latency is 301 µs on both sides: that is no",
        ),
        ({"sme": "sme2", "latency_us": [200, 400] * 5}, "but the measurement cannot tell that"),
        (
            {"sme": "sme2", "latency_us": [601] * 10},
            "is 601 µs instead of 301 µs: more than noise",
        ),
    ],
)
def test_the_verdict_in_plain_words(tmp_path: Path, after: dict[str, Any], sentence: str) -> None:
    latency = [300 + i % 3 for i in range(10)]
    sides = [Experiment("a", OFF_OPS, latency_us=latency),
             Experiment("b", OFF_OPS, **({"latency_us": latency} | after))]  # fmt: skip
    text = Page(render_html([assess_run(analyze(tmp_path / "r", Run(sides)))])).visible
    assert sentence in text


def test_a_speed_up_has_the_digits_that_its_interval_tells_wherever_it_stands(
    tmp_path: Path,
) -> None:
    """A reader met 5.52× beside 4.58× … 5.80×, and 1.35× below 1.3×."""
    ratios = [4.5, 5.9, 5.2, 5.8, 4.7, 5.5, 5.6, 5.9, 4.6, 5.3]
    sides = [Experiment("a", OFF_OPS, latency_us=[round(300 * each) for each in ratios]),
             Experiment("b", OFF_OPS, sme="sme2", latency_us=[300] * 10)]  # fmt: skip
    text = Page(render_html([assess_run(analyze(tmp_path / "r", Run(sides)))])).visible
    (speed_up,) = set(re.findall(r"(\S+×) \(95 % interval in this run 4\.89× … 5\.70×\)", text))
    assert re.fullmatch(r"5\.\d\d×", speed_up)
    assert f"{speed_up} faster" in text
    assert f"faster, speedup {speed_up} (95 % interval in this run 4.89× … 5.70×)" in text
    assert f"Steady inference 1.62 ms 300 µs {speed_up} 4.89× … 5.70× faster" in text


def test_operators_that_were_not_timed_show_what_was_proven(tmp_path: Path) -> None:
    """The table had its operators' names alone, until columns were asked for."""
    page = Page(
        render_html([assess_run(analyze(tmp_path / "r", replace(on_off_run(), meaningful=False)))])
    )
    levels = {a["data-name"]: a["data-level"] for tag, a in page.tags if "data-level" in a}
    assert {name for name, level in levels.items() if level != "2"} >= {"name", "class"}
    assert levels["name"] == "0"
    assert levels["class"] == "1"


def test_time_by_line_module_and_microkernel(tmp_path: Path) -> None:
    source = {"file": "/x/net.py", "line": 7, "code": "x = self.conv(x, 2, y)"}
    origin = {"module_path": "stem.conv", "module_type": "Conv2d", "source": source}
    operator = {"name": "c", "operator": "convolution.default", "macs": 800_000, "origin": origin,
                "shape": [1, 8, 4, 4], "input_bytes": 40_000, "output_bytes": 40_000}  # fmt: skip
    nodes = [{"kind": "Conv2d", "operators": ["c"], "attribution": "exact", "macs": 800_000}]
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": nodes}
    method = {"operators": [operator], "delegates": [delegate]}
    report = {"schema_version": 1, "model": "known", "methods": {"forward": method}}
    ops = [Op("Convolution (NHWC, PF16) IGEMM #1", 100)]
    run = Run([Experiment("e", ops, sme="sme2")], delegation=report)
    assessment = assess_run(analyze(tmp_path / "r", run))
    page = render_html([assessment])
    text = Page(page).visible
    assert (
        "Hot lines of the model source Bar code operators time share MACs net.py:7 x = self.conv(x, 2, y)"
        in text
    )
    assert "module Bar operators time share MACs stem.conv 1 100 µs 100.0 %" in text
    assert "microkernel Bar operators time share MACs PF16 IGEMM 1 100 µs 100.0 %" in text
    # AND the operator's row has its rate, what it moves, and its shape
    assert "800,000 16.0 0.800 1x8x4x4" in text
    assert "| stem.conv | 1 | 100 µs | 100.0 % | 800,000 |" in render_markdown([assessment])
    # WHEN it takes few of XNNPACK's whole microseconds, THEN rates are limits
    quick = replace(run, experiments=[Experiment("e", [Op(ops[0].label, 2)], sme="sme2")])
    text = Page(render_html([assess_run(analyze(tmp_path / "q", quick))])).visible
    assert "800,000 ≤ 800 ≤ 40.0 1x8x4x4" in text


def test_thread_map_appears_with_several_thread_counts(tmp_path: Path) -> None:
    sweep = [
        Experiment(f"t{n}", OFF_OPS, threads=n, latency_us=[100 / n + i % 2 for i in range(10)])
        for n in (1, 2)
    ]
    text = Page(render_html([assess_run(analyze(tmp_path / "r", Run(sweep)))])).visible
    assert "off 100 µs 50.5 µs" in text


def test_an_etdump_alone_gives_a_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", on_off_run())
    (etdump,) = folder.glob("android_off/*.etdump")
    text = Page(render_html(assess_runs([LoadedRun.load(etdump)]))).visible
    assert "No baseline: one configuration was measured." in text
    assert "one ETDump alone: latency without tracer, load and memory are not known" in text


def test_an_etdump_with_unknown_events_alone_gives_a_report(tmp_path: Path) -> None:
    events = [span(b"DELE_CALL", 0, 30), span(b"Method::execute", 0, 125)]
    path = tmp_path / "bare.etdump"
    path.write_bytes(write_etdump(etdump([event_block(b"Execute", events)])).data)
    text = Page(render_html(assess_runs([LoadedRun.load(path)]))).visible
    assert "Program execution" in text
    assert "DELE_CALL" in text


def test_charts_of_a_clock_that_stood_still_have_no_parts() -> None:
    """Each divided by a time of zero."""
    still = {"median_ns": 0.0, "at_most": 1.0, "experiment": "on"}
    table = SimpleNamespace(name="launches", records=lambda: [still])
    assert charts.steps_of(cast("Table", table)) is not None
    assert charts._stack_part(GROUPS[0], {GROUPS[0]: 0.0}, 0.0)["width"] == "0.000"
    assert charts._roof_line(1e4, 1.0, (0, 1), (2, 5)) is None
    assert charts._roof_line(1e4, 1e3, (0, 1), (2, 5)) is not None
