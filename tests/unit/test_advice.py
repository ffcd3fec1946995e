"""What a finding advises can be done as it is printed, and what is not shown is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from etprof.analysis.assessment import assess_run
from etprof.analysis.findings.rules import RULES
from etprof.analysis.insight import describe_run
from etprof.analysis.run_analysis import analyze_run
from etprof.run.load import Run as LoadedRun
from etprof.tables.brief import brief_of
from etprof.tables.verdicts import silent_rules
from tests.known_runs import Op, Run, analyze, write_run
from tests.unit.test_findings import convolutions, fired, one
from tests.unit.test_findings_hold import described, traced

if TYPE_CHECKING:
    from pathlib import Path


def test_what_doubtful_times_would_say_is_withheld_by_name(tmp_path: Path) -> None:
    """The one finding that explained 99 % of a run was left out, and nothing said so."""
    layout = Op("Transpose (ND, X32) #1", 50)
    ops = [*convolutions(100), layout, Op("native_call_gelu.out", 100, 1)]
    outside = traced(
        "o1", "gelu.out", "aten.gelu.default", instruction=1, rewrites=["plain_products"]
    )
    sound, doubtful = (
        describe_assessment(
            tmp_path / name, described(one(ops, latency_us=[latency_us] * 10), [outside])
        )
        for name, latency_us in (("sound", 250.0), ("doubtful", 150.0))
    )
    assert "F5 " in sound
    assert "withheld" not in sound
    assert "about 99.6 µs to gain" in sound
    assert (
        "F2d (a single large layout operator) is withheld: operator times and the timed latency differ by "
        in doubtful
    )
    # AND what is outside the delegate is so in a noisy run too; what that costs is not known
    assert "F5 Operators fall back to portable kernels" in doubtful
    assert "to gain" not in doubtful
    assert "Measure again on a quiet machine, or" in doubtful
    assert "No findings." not in doubtful


def test_checks_of_times_that_are_in_doubt_have_not_found_nothing(tmp_path: Path) -> None:
    """ "Checks that found nothing: F6, F12" stood in a run whose operator times were withheld."""
    ops = [*convolutions(100), Op("native_call_gelu.out", 1, 1)]
    outside = traced("o1", "gelu.out", "aten.gelu.default", instruction=1)
    silent = {}
    for name, latency_us in (("sound", 101.0), ("doubtful", 60.0)):
        run = described(one(ops, latency_us=[latency_us] * 10), [outside])
        told = assess_run(analyze(tmp_path / name, run))
        silent[name] = {
            rule for text in silent_rules(told) for rule in RULES if f"({rule})" in text
        }
    readers = {name for name, rule in RULES.items() if rule.reads_operators}
    assert {"F1", "F2", "F3", "F6", "F12"} <= silent["sound"] & readers
    assert not silent["doubtful"] & readers
    # AND what does not read these times is asked all the same
    assert silent["sound"] - readers == silent["doubtful"] - readers != set()


def describe_assessment(folder: Path, run: Run) -> str:
    brief = brief_of(assess_run(analyze_run(LoadedRun.load(write_run(folder, run)))))
    return "\n".join([line.text for line in brief.headlines] + [p.text for p in brief.points])


def test_a_command_repeats_what_the_program_was_made_of(tmp_path: Path) -> None:
    """A model that takes `--input` was told to be exported without it, which exits 2."""
    ops = [*convolutions(100), Op("native_call_gelu.out", 100, 1)]
    operator = traced("o1", "gelu.out", "aten.gelu.default", instruction=1,
                      rewrites=["half_activations"], reason="no rule")  # fmt: skip
    path = write_run(tmp_path / "r", described(one(ops), [operator]))
    identity = {"path": "my weights.pt", "sha256": "0" * 64, "size": 1}
    options = {
        "example_inputs": ["1x8x200", {"input": "ids=ids.npy", "sha256": "0" * 64}],
        "weights": identity, "scopes": ["head=fp32"], "channels_last": True, "per_op_mode": False,
        "memory_planning": "greedy", "rewrites": ["plain_products"],
    }  # fmt: skip
    export = {
        "model": "Net", "backend": "xnnpack", "precision": "fp16", "options": options,
        "source": {"origin": "net.py"}, "rewrites": [{"name": "plain_products", "operators": 1}],
    }  # fmt: skip
    (path / "export.json").write_text(json.dumps(export))
    found = fired(describe_run(analyze_run(LoadedRun.load(path))))["F5"]
    assert (
        "`etprof export net.py:Net --input 1x8x200 --input ids=ids.npy --weights 'my weights.pt' "
        "--dtype fp16 --channels-last --scope head=fp32 --rewrite half_activations,plain_products`"
    ) in found.action
