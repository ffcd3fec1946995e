"""What a finding's command reaches of its operators, what it costs, and whether it is worth it."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from etprof.analysis.assessment import assess_run
from etprof.analysis.findings.finding import Finding, Refusal
from etprof.analysis.insight import describe_run
from etprof.analysis.run_analysis import analyze_run
from etprof.backends.registry import BACKENDS
from etprof.run.load import Run as LoadedRun
from etprof.tables.brief import brief_of, next_step_line
from etprof.tables.findings import best_suggestion, group_findings
from etprof.views.formats.html import render_html
from etprof.views.markdown import render_markdown
from etprof.views.terminal import render_report
from tests.known_runs import Op, Run, analyze, write_run
from tests.unit.test_findings import CONV, findings_of, fired, insight, one
from tests.unit.test_findings_hold import repeated
from tests.unit.test_gains import outside

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from etprof.analysis.assessment import Assessment

COMMAND = "etprof export known --dtype fp16 --rewrite "
NO_OPERATOR = "`topk` of the model has no operator in the XNNPACK delegate"


def model(rewrites: Mapping[str, tuple[str, ...]], us: Mapping[str, int]) -> Run:
    """Six equal operator launches with these operators outside the delegate, 1 ms of convolutions."""
    ops = [Op(CONV.format(1), 900)]
    ops += [Op(f"native_call_{kind}.out", us[kind], at) for at, kind in enumerate(rewrites, 1)]
    return outside(rewrites, repeated(*[[*ops, Op(CONV.format(2), 100, 9)]] * 6))


def assessment(folder: Path, run: Run) -> Assessment:
    return assess_run(analyze(folder, run))


def points(told: Assessment) -> list[tuple[str, str]]:
    return [(point.text, point.action) for point in brief_of(told).points]


def test_a_command_that_replaces_few_operators_says_so(tmp_path: Path) -> None:
    """F5's command took 1 of 101 operators, and it was said to take them."""
    rewrites: dict[str, tuple[str, ...]] = {"topk": (), "mean": ("kept_dimensions",)}
    run = model(rewrites, {"topk": 300, "mean": 200})
    found = fired(insight(tmp_path / "a", run))["F5"]
    assert (found.replaced_operators, found.operators) == (1, 2)
    assert found.action == (
        f"`{COMMAND}kept_dimensions` replaces 1 of these 2 operators; the export made it from a mean that the delegate "
        "does not support"
    )
    assert found.explanation == f"No rewrite of etprof helps the others: {NO_OPERATOR}"
    told = points(assessment(tmp_path / "b", run))
    text = next(text for text, action in told if action == f"{COMMAND}kept_dimensions")
    assert text.endswith("; the command replaces 1 of 2 operators")


def test_a_command_that_replaces_all_needs_no_count(tmp_path: Path) -> None:
    run = model({"mean": ("kept_dimensions",), "gelu": ("plain_views",)}, {"mean": 99, "gelu": 99})
    found = fired(insight(tmp_path / "a", run))["F5"]
    assert "` replaces all 2; the export made them from a " in found.action
    assert found.explanation == ""
    assert all(
        "the command replaces" not in text for text, _ in points(assessment(tmp_path / "b", run))
    )


def test_what_a_doubtful_run_can_gain_is_not_known_but_how_much_it_reaches(tmp_path: Path) -> None:
    rewrites: dict[str, tuple[str, ...]] = {"topk": (), "mean": ("kept_dimensions",)}
    ops = [Op("native_call_topk.out", 60, 1), Op("native_call_mean.out", 60, 2)]
    run = outside(rewrites, one([Op(CONV.format(1), 100), *ops], latency_us=[90.0] * 10))
    text = next(text for text, action in points(assessment(tmp_path / "a", run)) if action)
    assert (
        text == "F5 Operators fall back to portable kernels: the command replaces 1 of 2 operators"
    )


def test_a_gain_below_the_margin_leads_with_no_command(tmp_path: Path) -> None:
    """Its whole prediction counts as no difference: the answer gave the command all the same."""
    rewrites: dict[str, tuple[str, ...]] = {"topk": (), "mean": ("delegated_casts",)}
    told = assessment(tmp_path / "a", model(rewrites, {"topk": 300, "mean": 8}))
    shown = points(told)
    assert all("etprof export" not in action for _, action in shown)
    text, action = next(point for point in shown if point[0].startswith("F5"))
    assert ": predicted gain 6 … 10 µs, below 2 %: not worth it" in text
    assert action == f"No rewrite of etprof helps the others: {NO_OPERATOR}"
    assert shown[-1] == (text, action), "what is worth it comes first"
    assert COMMAND not in (best_suggestion(told) or "")
    # AND the command is still there for who wants it
    assert f"`{COMMAND}delegated_casts`" in fired(insight(tmp_path / "b", model(
        rewrites, {"topk": 300, "mean": 8})))["F5"].advice  # fmt: skip


def test_a_prediction_that_reaches_the_margin_is_worth_a_command(tmp_path: Path) -> None:
    rewrites: dict[str, tuple[str, ...]] = {"topk": (), "mean": ("kept_dimensions",)}
    shown = points(assessment(tmp_path / "a", model(rewrites, {"topk": 300, "mean": 24})))
    assert f"{COMMAND}kept_dimensions" in [action for _, action in shown]
    assert all("not worth it" not in text for text, _ in shown)


def test_one_reason_stands_under_one_finding(tmp_path: Path) -> None:
    """F5 and F6 said the same sentence, one below the other."""
    run = model({"topk": ()}, {"topk": 300})
    found = findings_of(insight(tmp_path / "a", run)).findings
    assert {"F5", "F6"} <= {finding.rule for finding in found}
    assert [NO_OPERATOR in finding.advice for finding in found].count(True) == 1
    assert all(finding.advice for finding in found if finding.rule in {"F5", "F6"})


@pytest.mark.parametrize("form", ["terminal", "md", "html"])
def test_a_sentence_is_no_order_to_do_something(tmp_path: Path, form: str) -> None:
    told = assessment(tmp_path / "a", model({"topk": ()}, {"topk": 300}))
    stream = StringIO()
    Console(file=stream, width=1000).print(render_report(told, top=3))
    text = {
        "terminal": stream.getvalue(),
        "md": render_markdown([told]),
        "html": render_html([told]),
    }
    plain = text[form].replace("<strong>", "").replace("</strong>", "")
    assert "No rewrite of etprof helps here: " in plain
    assert "Do: No rewrite" not in plain


def test_a_rewrite_that_rounds_more_says_who_decides(tmp_path: Path) -> None:
    """`profile` advised half_activations, and `optimize` dropped it for the 2 dB that it cost."""
    run = model({"gelu": ("half_activations",)}, {"gelu": 300})
    caveat = "half_activations can cost accuracy: `optimize` measures how much, and decides"
    found = fired(insight(tmp_path / "a", run))["F5"]
    assert found.advice.endswith(f". {caveat}")
    told = assessment(tmp_path / "b", run)
    text, action = points(told)[0]
    assert text.endswith(f"; {caveat}")
    assert action == f"{COMMAND}half_activations"
    exact = model({"gelu": ("plain_views",)}, {"gelu": 300})
    assert "accuracy" not in fired(insight(tmp_path / "c", exact))["F5"].advice


def test_a_command_that_replaces_few_gives_way_to_what_no_rewrite_helps() -> None:
    """F5 of a GRU led with a command for 1 of 302 operators."""
    first = Finding(
        "fallback", "high", "", "`etprof a`", rule="F5", operators=302, replaced_operators=1
    )
    second = Finding(
        "norms", "medium", "", "`etprof b`", rule="F1", operators=10, replaced_operators=1
    )
    groups = group_findings([first, second])
    assert [group.reaches_few for group in groups] == [True, False]
    assert groups[0].reach == "rewrites replace 1 of 302 operators"
    gru = replace(first, refusals=(Refusal("gru", "`gru` becomes 301 operators"),))
    (group,) = group_findings([gru])
    assert group.action == "No rewrite of etprof helps the others: `gru` becomes 301 operators"


def test_a_command_that_is_the_next_step_is_printed_once(tmp_path: Path) -> None:
    """F13's command stood below F13 and again as the next one."""
    told = assessment(tmp_path / "a", model({"mean": ("kept_dimensions",)}, {"mean": 300}))
    (action,) = {action for _, action in points(told) if action.startswith(COMMAND)}
    without = brief_of(told, ends=["Report: r", next_step_line(action)])
    assert action not in {point.action for point in without.points}
    assert [point.text for point in without.points] == [text for text, _ in points(told)]


def test_inexact_rewrites_are_rewrites() -> None:
    for backend in BACKENDS:
        names = {rewrite.name for rewrite in backend.exporter().rewrites()}
        assert backend.inexact_rewrites <= names


def test_a_finding_that_refers_to_another_stands_under_it() -> None:
    """ "F1 …: see F5" was printed where F5 had no room."""
    first = Finding("fallback", "high", "", "", rule="F5", refusals=(Refusal("gelu", "a gelu"),))
    second = Finding("norms", "high", "", "see F5", rule="F1")
    apart = Finding("noise", "medium", "", "see F13", rule="F2")
    groups = group_findings([first, second, apart])
    assert [(group.lead, group.others) for group in groups] == [(first, (second,)), (apart, ())]


def test_what_a_search_did_not_keep_is_not_advised_again(tmp_path: Path) -> None:
    """`optimize` dropped a rewrite, F5 of its program advised it, and it changed nothing."""
    actions = {}
    for name, left_out in (("plain", {}), ("searched", {"kept_dimensions": "no gain"})):
        run = model(
            {"mean": ("kept_dimensions",), "gelu": ("plain_views",)}, {"mean": 99, "gelu": 99}
        )
        path = write_run(tmp_path / name, run)
        export = {"model": "known", "backend": "xnnpack", "precision": "fp16"}
        (path / "export.json").write_text(json.dumps({**export, "rewrites_left_out": left_out}))
        loaded = describe_run(analyze_run(LoadedRun.load(path)))
        actions[name] = fired(loaded)["F5"].action
    assert "--rewrite kept_dimensions,plain_views` replaces all 2" in actions["plain"]
    assert "--rewrite plain_views` replaces 1 of these 2" in actions["searched"]
