"""The first page that a user meets: what was measured, what to do, where the time goes, in this order."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.findings.finding import Finding
from etprof.base.text import what_differs
from etprof.cli.profile import describe_faster_threads
from etprof.tables.brief import brief_comparison, brief_of
from etprof.tables.findings import group_findings
from etprof.tables.verdicts import tiles_of
from etprof.views.formats.html import render_html
from tests.golden.runs import described
from tests.known_runs import Run, analyze, on_off_run, write_run
from tests.unit.test_findings import convolutions, fired, insight, one
from tests.world.host import etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

if TYPE_CHECKING:
    from pathlib import Path

SETUP = "known, fp16, 1 thread"


def described_run() -> Run:
    return replace(on_off_run(), delegation=described())


@pytest.mark.parametrize(
    ("first", "second", "short"),
    [
        ("linux_auto_SmallNet_xnnpack_fp16", "linux_auto_toy_cnn_xnnpack_fp16",
         ("SmallNet", "toy_cnn")),
        ("linux_auto_toy_cnn_xnnpack_fp16", "linux_auto_toy_cnn_xnnpack_int8", ("fp16", "int8")),
        ("emulator_off", "emulator_sme2_512", ("off", "sme2_512")),
        ("linux_auto_SmallNet_xnnpack_fp16", "linux_auto_BetterNet_xnnpack_fp16_rewritten",
         ("SmallNet", "BetterNet_rewritten")),
        ("linux_20261125T0900Z", "linux", ("linux_20261125T0900Z", "linux")),
        ("a_b", "a_x_b", ("a_b", "a_x_b")),
        ("off", "on", ("off", "on")),
        ("same", "same", ("same", "same")),
    ],
)  # fmt: skip
def test_names_shrink_to_what_differs(first: str, second: str, short: tuple[str, str]) -> None:
    assert what_differs(first, second) == short
    assert what_differs(second, first) == short[::-1]


def test_a_mode_is_in_words_only_where_it_is_one(tmp_path: Path) -> None:
    run = on_off_run()
    comparison = assess_run(analyze(tmp_path / "r", run)).primary_comparison
    assert comparison is not None
    assert comparison.short_name == "SME off → SME2"
    # AND a cache that is off is not SME
    names = zip(run.experiments, ("cache_off", "cache_on"), strict=True)
    named = replace(run, experiments=[replace(each, name=name, sme="sme2") for each, name in names])
    others = analyze(tmp_path / "named", named).experiments
    before, after = (
        replace(side, experiment=experiment)
        for side, experiment in zip(
            (comparison.baseline, comparison.candidate), others, strict=True
        )
    )
    assert replace(comparison, baseline=before, candidate=after).short_name == "off → on"


def test_every_answer_begins_with_precision_and_threads(tmp_path: Path) -> None:
    write_run(tmp_path / "r", described_run())
    pair = ["r:android_off", "r:android_sme2"]
    for words in (["analyze", "r"], ["analyze", "r", "--full"], ["report", "r"],
                  ["compare", *pair], ["compare", *pair, "--full"]):  # fmt: skip
        first = etprof(tmp_path, *words, columns=200).stdout.partition("\n")[0]
        assert first.startswith(f"{SETUP}, SME off → SME2: faster, speedup"), words
    page = (tmp_path / "r/report.html").read_text()
    assert f'<p class="plain">{SETUP}, SME off → SME2: faster' in page
    # AND of one configuration alone
    alone = replace(on_off_run(), experiments=on_off_run().experiments[:1])
    head = brief_of(assess_run(analyze(tmp_path / "alone", alone))).headlines[0].text
    assert head == f"{SETUP}: median latency 901 µs. No baseline: one configuration was measured."


def test_sides_of_two_thread_counts_say_both(tmp_path: Path) -> None:
    first, second = (
        replace(on_off_run().experiments[0], name=f"off_{n}", threads=n) for n in (1, 4)
    )
    assessment = assess_run(analyze(tmp_path / "r", Run([first, second])))
    assert assessment.primary_comparison is not None
    text = brief_comparison(assessment.primary_comparison).headlines[0].text
    assert text.startswith("known, fp16, 1 → 4 threads, ")


def test_threads_that_nobody_chose_are_told(tmp_path: Path) -> None:
    """L3-15: `profile` took all cores in silence, 145 µs with two threads, 99 with one."""
    quick = slow = on_off_run().experiments[0]
    write_run(tmp_path / "linux_earlier", Run([replace(quick, latency_us=[99.0] * 10)]))
    write_run(tmp_path / "linux", Run([replace(slow, threads=2, latency_us=[145.0] * 10)]))
    assert describe_faster_threads(tmp_path / "linux", 2) == (
        f"1 thread was faster: 99.0 µs instead of 145 µs ({tmp_path / 'linux_earlier'})"
    )
    # AND where one is not known to be faster, nothing is claimed
    slower = tmp_path / "slower"
    write_run(slower / "linux_earlier", Run([replace(quick, latency_us=[200.0] * 10)]))
    write_run(slower / "linux", Run([replace(slow, threads=2, latency_us=[145.0] * 10)]))
    assert describe_faster_threads(slower / "linux", 2) is None


class TwoCores(SimTarget):
    """A machine with two cores."""

    def default_threads(self) -> int:
        return 2


def test_profile_says_so_only_where_it_chose(tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(b"program")
    with simulated_host(lambda **_: TwoCores(RunSpec())):
        chosen = etprof(tmp_path, "profile", "m.pte", "--blocks", "1", "--out", "a")
        given = etprof(
            tmp_path, "profile", "m.pte", "--blocks", "1", "--threads", "2", "--out", "b"
        )
    note = "Measured with 2 threads, one per core; --threads sets another number"
    assert note in chosen.stderr
    assert "one per core" not in given.stderr


def test_pages_answer_then_advise_then_show_where_the_time_goes(tmp_path: Path) -> None:
    page = render_html([assess_run(analyze(tmp_path / "r", described_run()))])
    places = [page.index(f'id="r0-{name}"') for name in
              ("title", "findings", "rollups", "time", "operators", "latencies", "rest", "provenance")]  # fmt: skip
    assert places == sorted(places)
    navigation = page.partition("<nav")[2].partition("</nav>")[0]
    assert 4 <= navigation.count("<a ") <= 8
    targets = re.findall(r'href="#([^"]+)"', navigation)
    assert all(f'id="{target}"' in page for target in targets)
    # AND what nobody needs at first is folded
    for anchor in ("launches", "tracer", "ledger", "timeline"):
        assert f'<summary><h2 id="r0-{anchor}">' in page, anchor
    assert '<summary><h2 id="r0-operators">' not in page
    assert '<summary><h2 id="words">' in page


def test_terminals_have_the_same_order(tmp_path: Path) -> None:
    write_run(tmp_path / "r", described_run())
    text = etprof(tmp_path, "analyze", "r", "--full", columns=120).stdout
    heads = [SETUP, "\nFindings", "\nModules of SME2\n", "\nWhere an inference's time goes\n",
             "\nOperators of android_off\n", "\nLatency of timing launches\n", "\nFrom start to steady"]  # fmt: skip
    places = [text.index(head) for head in heads]
    assert places == sorted(places)


def finding(rule: str, action: str) -> Finding:
    return Finding(f"title of {rule}", "medium", f"{rule} saw this.", action, rule=rule)


def test_one_cause_is_one_finding() -> None:
    """U3-7: one cause was six findings with one command."""
    export = "`etprof export m --dtype fp16 --rewrite kept_dimensions`"
    groups = group_findings([
        finding("F5", f"change it: {export} takes them in"), finding("F19", "`etprof numerics m`"),
        finding("F6", f"look there; {export}"), finding("F3c", ""), finding("F8", ""),
    ])  # fmt: skip
    assert [[f.rule for f in (group.lead, *group.others)] for group in groups] == [
        ["F5", "F6"], ["F19"], ["F3c"], ["F8"],
    ]  # fmt: skip
    assert groups[0].action == export.strip("`")


def test_a_tile_has_its_figure_large_and_what_it_rests_on_beside_it(tmp_path: Path) -> None:
    experiment = on_off_run().experiments[0]
    timed = replace(experiment, latency_us=[900.0 + i for i in range(10)])
    tiles = {
        tile.label: tile for tile in tiles_of(assess_run(analyze(tmp_path / "r", Run([timed]))))
    }
    assert tiles["Median inference"][1:] == ("904 µs", "90 samples")
    assert tiles["99th percentile"][1:] == ("918 µs", "minimum 891 µs")
    assert tiles["Peak memory"].caption.startswith("planned ")


def test_the_emulator_names_the_largest_fault_first(tmp_path: Path) -> None:
    """U3-7: it showed the width of a layer, and hid the portable mean in F23."""
    (tmp_path / "m.pte").write_bytes(b"program")
    spec = RunSpec(capabilities=Capabilities(platform="emulator"))
    with simulated_host(lambda **_: SimTarget(spec)):
        etprof(tmp_path, "profile", "m.pte", "--target", "emulator", "--out", "r")
    assert any(not operator.is_delegated for operator in spec.operators["sme2"])
    text = etprof(tmp_path, "analyze", "r", columns=120).stdout
    rules = re.findall(r"^(F\d+)", text, re.MULTILINE)
    assert rules[0] == "F5"


def test_nothing_is_advised_where_nothing_can_be_done(tmp_path: Path) -> None:
    write_run(tmp_path / "r", described_run())
    text = etprof(tmp_path, "analyze", "r", "--full", columns=300).stdout
    assert re.search(r"F3c .*\n(?!   Do)", text)
    assert not re.search(r"Do: *(\n|$|none|nothing)", text)
    etprof(tmp_path, "report", "r")
    for name in ("report.html", "report.md"):
        words = re.sub(r"<[^>]*>", "", (tmp_path / "r" / name).read_text())
        assert not re.search(r"Do: *(\n|none|nothing)", words), name


def test_noise_leads_with_what_is_bad(tmp_path: Path) -> None:
    """U3-6: F13 led with 1.3 % where the noise was 207 %."""
    flat = [100.0] * 10
    drifting = [100.0] * 5 + [120.0] * 5
    assert "F13" not in fired(insight(tmp_path / "flat", one(convolutions(9), latency_us=flat)))
    summary = fired(insight(tmp_path / "d", one(convolutions(9), latency_us=drifting)))[
        "F13"
    ].summary
    assert summary.startswith(
        "The second half of the launches is 20.0 % slower than the first; launches"
    )
    # AND what is within its limit is no part of the sentence
    assert "inside a launch" not in summary


def test_few_launches_are_told_once(tmp_path: Path) -> None:
    """U3-8: "fewer than 20 launches cannot tell" stood on every row of every default run."""
    alone = replace(on_off_run(), experiments=on_off_run().experiments[:1])
    write_run(tmp_path / "r", alone)
    text = etprof(tmp_path, "analyze", "r", "--full", columns=200).stdout
    assert text.count("assuming independent launches (--blocks 20 or more checks that)") == 1
    assert "cannot tell" not in text
    table = text.partition("Latency of timing launches")[2].partition("└")[0]
    assert "independent" not in table


def test_another_model_is_a_reference(tmp_path: Path) -> None:
    """U3-9: `compare` of two models was refused without naming `report --reference`."""
    for name, inputs in (("mine", "a" * 64), ("theirs", "c" * 64)):
        write_run(tmp_path / name, replace(one(convolutions(9)), model=name, inputs=[inputs]))
    done = etprof(tmp_path, "compare", "theirs", "mine", columns=300)
    assert done.exit_code == 2
    way_out = (
        "different models: set one beside the other with `etprof report mine --reference theirs`"
    )
    assert way_out in done.stderr
    allowed = etprof(tmp_path, "compare", "theirs", "mine", "--allow", "inputs", columns=300)
    assert allowed.stdout.startswith("theirs → mine, fp16, 1 thread: inconclusive")
    # AND no difference between two models is variation
    assert ", of two different models, with one run per side." in allowed.stdout
    assert "variation" not in allowed.stdout
