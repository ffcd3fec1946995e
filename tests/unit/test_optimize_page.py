"""The page of a search, and the suggestion that a measurement ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etprof.optimize.optimizing import find_other_searches
from etprof.run.optimization import Gain, Optimization, OptimizationStep, Trial, pareto_front
from etprof.run.program import AppliedRewrite
from etprof.tables.optimize import before_and_after, headline, programs_of, sections
from etprof.views.charts import dots_of
from etprof.views.optimize import optimize_page
from tests.world.host import etprof, simulated_host
from tests.world.sim_target import SimTarget

MACS = 1000


def trial(number: int, *names: str, on_sme2: int, snr_db: float = 60.0, size: int = 9000) -> Trial:
    return Trial(
        number=number, rewrites=names, macs=MACS, macs_without_sme2=MACS - on_sme2, passed=True,
        applied=tuple(AppliedRewrite(name=name, operators=1) for name in names),
        delegate_calls=2, outside=1, size_bytes=size, snr_db=snr_db,
    )  # fmt: skip


def search(precision: str = "fp16", *, gains: tuple[Gain, ...] = ()) -> Optimization:
    plain, best = trial(0, on_sme2=100), trial(1, "kept", on_sme2=900, snr_db=59.0)
    broken = Trial(number=2, rewrites=("bad",), problem="its outputs <b>differ</b>")
    return Optimization(
        model="m", precision=precision, backend="xnnpack", made_of="x", tolerance_db=2.0,
        baseline=plain, best=best, trials=(plain, best, broken), is_complete=True, gains=gains,
        target="linux" if gains else None,
        steps=(
            OptimizationStep(rewrite="kept", kept=True, why="without it slower", without=plain, gains=gains),
            OptimizationStep(rewrite="bad", kept=False, why="with it its outputs <b>differ</b>"),
        ),
    )  # fmt: skip


GAIN = Gain(
    method="forward", sme="sme2", pairs=10, speed_up=1.5, low=1.4, high=1.6, verdict="faster",
    run="runs/1_against_0",
)  # fmt: skip


def test_the_page_has_what_stayed_what_was_rejected_and_every_program_once() -> None:
    page = optimize_page(search(gains=(GAIN,)), [search("int8")])
    for anchor in ("result", "kept", "rejected", "programs"):
        assert page.count(f'<h2 id="{anchor}">') == 1
    # Four programs of two searches; the one that could not be made has no dot.
    assert page.count("<circle") == 4
    assert "1.40× … 1.60×" in page
    assert "<b>differ</b>" not in page
    assert "with it its outputs &lt;b&gt;differ&lt;/b&gt;" in page


def test_a_result_that_was_not_timed_says_so_and_has_no_times() -> None:
    found = search()
    assert headline(found).endswith("; not timed")
    result, kept, *_ = (each.tables[0] for each in sections(found, []))
    assert all(row["speed_up"] is None for row in (*result.records(), *kept.records()))
    assert "not a time" in result.note or "is a time" in result.note


def test_a_result_is_called_what_it_did() -> None:
    """A program with 100 instead of 101 operators outside the delegate was called optimized."""
    plain, best = trial(0, on_sme2=100), trial(1, "kept", on_sme2=100)
    plain, best = (
        program.model_copy(update={"outside": outside})
        for program, outside in ((plain, 101), (best, 100))
    )
    found = search().model_copy(update={"baseline": plain, "best": best, "trials": (plain, best)})
    assert headline(found) == (
        "m in fp16, with kept: operators outside the delegate 101 → 100; not timed"
    )
    names = [row["program"] for row in before_and_after(found).records()]
    assert names == ["as it is", "with rewrites"]
    assert [row["program"] for row in programs_of([found]).records()] == names


def test_a_dot_is_where_its_figures_are() -> None:
    table = programs_of([search(), search("int8")])
    drawn = dots_of(table)
    assert drawn is not None
    first, second, third, _ = drawn["dots"]
    # A tenth and nine tenths of the width; 60 dB above 59; equal sizes.
    assert (first["x"], second["x"]) == (132.0, 868.0)
    assert (first["y"], second["y"]) == (40.0, 280.0)
    assert first["r"] == second["r"]
    assert first["colour"] == second["colour"] != third["colour"]
    assert dots_of(sections(search(), [])[0].tables[0]) is None


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (trial(1, on_sme2=900, snr_db=61.0, size=8000), [False, True]),
        (trial(1, on_sme2=900, snr_db=50.0), [True, True]),
        (trial(1, on_sme2=100), [True, True]),
        (trial(1, on_sme2=100, size=9001), [True, False]),
    ],
)
def test_a_program_is_unbeaten_unless_another_is_as_good_in_everything(
    other: Trial, expected: list[bool]
) -> None:
    assert pareto_front([(trial(0, on_sme2=100), MACS), (other, MACS)]) == expected


def test_searches_of_other_precisions_are_found_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    """This search is done: what lies beside it cannot make it fail."""
    for name, text in (
        ("other", search("int8").model_dump_json()),
        ("same", search().model_dump_json()),
        ("damaged", "{"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "optimize.json").write_text(text)
    told: list[str] = []
    others = find_other_searches(search(), tmp_path / "own", told.append)
    assert [each.precision for each in others] == ["int8"]
    (line,) = told
    assert "damaged/optimize.json" in line


def write_export(
    folder: Path, *, outside: int = 0, without: float = 0.0, missed: bool = True, **more: object
) -> Path:
    """Writes a program with operators outside, and a share of its work without an SME2 kernel.

    With `missed` a rewrite is known for each of them.
    """
    program = folder / "net.pte"
    program.write_bytes(b"program")
    exported = {
        "model": "net", "backend": "xnnpack", "precision": "fp16", "methods": {"forward": {}},
        "source": {"origin": "mine/nets.py"}, **more,
    }  # fmt: skip
    rewrites = ["plain_views"] if missed else []
    operators = [
        {"name": f"view_{i}", "operator": "view", "instruction": i, "rewrites": rewrites}
        for i in range(outside)
    ]
    operators.append({"name": "product", "operator": "linear", "delegate": 0, "macs": 100})
    macs = round(100 * without)
    nodes = [
        {"kind": "FullyConnected", "macs": macs, "sme2_rewrites": rewrites},
        {"kind": "FullyConnected", "macs": 100 - macs},
    ]
    method = {
        "operators": operators,
        "delegates": [{"name": "one", "backend": "XnnpackBackend", "nodes": nodes}],
    }
    report = {"schema_version": 1, "model": "net", "methods": {"forward": method}}
    program.with_name("net.pte.json").write_text(json.dumps(exported))
    program.with_name("net.pte.delegation.json").write_text(json.dumps(report))
    return program


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"outside": 3}, "3 operators outside the delegate: "),
        ({"without": 0.75}, "75.0 % of the work without an SME2 kernel: "),
        ({}, None),
        ({"outside": 3, "without": 0.75, "missed": False}, None),
        ({"outside": 3, "without": 0.75, "rewrites": [{"name": "plain_views"}]}, None),
    ],
)
def test_a_measurement_ends_with_the_search_that_may_change_the_program(
    tmp_path: Path, facts: dict[str, float], told: str | None
) -> None:
    """One line, with its command; none where the export knows no rewrite for what it lacks."""
    program = write_export(tmp_path, **facts)  # type: ignore[arg-type]
    with simulated_host(lambda *_, **__: SimTarget()):
        done = etprof(tmp_path, "profile", program, "--blocks", 2, "--full")
    assert done.exit_code == 0, done.stderr
    lines = [each for each in done.stderr.splitlines() if each.startswith("Next: ")]
    assert len(lines) <= 1
    found = [each for each in lines if "etprof optimize" in each]
    wanted = f"Next: {told}`etprof optimize mine/nets.py:net --dtype fp16` tries what changes that"
    assert found == ([] if told is None else [wanted])


def test_a_suggested_command_is_safe_to_paste(tmp_path: Path) -> None:
    """Whoever made the program chose its model's name."""
    program = write_export(tmp_path, outside=3, model="net; rm -rf ~", source={})
    with simulated_host(lambda *_, **__: SimTarget()):
        done = etprof(tmp_path, "profile", program, "--blocks", 2, "--full")
    assert "`etprof optimize 'net; rm -rf ~' --dtype fp16`" in done.stderr
