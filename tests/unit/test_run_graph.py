"""What Model Explorer is given of a program and of a run that is known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import InputFileError, UsageError
from etprof.model_explorer.run_graph import (
    delegate_times,
    details_by_node,
    facts_of,
    find_run,
    measured_fact,
    read_methods,
    read_run,
    sme_routes,
)
from etprof.views.partitions import delegate_of
from tests.golden.runs import described
from tests.known_runs import on_off_run, write_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", replace(on_off_run(), delegation=described()))


def test_a_programs_report_stands_beside_it(tmp_path: Path) -> None:
    program = tmp_path / "m.pte"
    with pytest.raises(InputFileError, match=r"m\.pte\.delegation\.json does not exist"):
        read_methods(program)
    (tmp_path / "m.pte.delegation.json").write_text(json.dumps(described()))
    assert list(read_methods(program)) == ["forward"]


def test_a_file_belongs_to_the_run_that_it_stands_in(run: Path, tmp_path: Path) -> None:
    etdump = next((run / "android_off").glob("*.etdump"))
    assert find_run(run) == run
    assert find_run(run / "android_off") == run
    assert find_run(etdump) == run
    (run / "android_off/deeper").mkdir()
    for stranger in (tmp_path, run / "android_off/deeper/x.etdump"):
        with pytest.raises(UsageError, match="stands in no run directory"):
            find_run(stranger)


def test_a_run_without_its_programs_report_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "bare", on_off_run())
    with pytest.raises(InputFileError, match="does not say what its program is made of"):
        read_run(folder)


def test_an_operator_says_where_it_is_and_what_it_computes(run: Path) -> None:
    _, report = read_run(run)
    stem, *_, mean = report.operators
    assert list(facts_of(report, stem)) == [
        ("delegate", "delegate 0 (XnnpackBackend)"),
        ("module", "features.0.stem"),
        ("source", "model.py:10 x = self.stem(x)"),
        ("multiply-accumulates", "800,000"),
    ]
    assert list(facts_of(report, mean)) == [
        ("delegate", "outside delegates"),
        ("why not delegated", "it reduces two dimensions"),
        ("module", "head.pool"),
    ]
    # A delegate that the report does not describe has a number alone.
    assert delegate_of(report, stem.model_copy(update={"delegate": 1})) == "delegate 1"


def test_what_ran_for_a_node_has_its_time_and_route(run: Path) -> None:
    assessment, report = read_run(run)
    off, sme2 = assessment.insight.experiments
    facts = {
        name: [measured_fact(detail) for detail in details]
        for name, details in details_by_node(sme2).items()
    }
    assert facts == {
        "stem": ["100 µs (34.4 %), SME named, PF16 IGEMM"],
        "depthwise": [
            (
                "50.0 µs (17.2 %), SME excluded, depthwise convolution has NEON microkernels only "
                "(true of ExecuTorch 1.5.1)"
            )
        ],
        "last": ["60.0 µs (20.6 %), SME named, PF16 IGEMM"],
        "mean": ["30.0 µs (10.3 %)"],
    }
    # The linear layer is in a second delegate, which the report does not describe.
    assert delegate_times(off, report) == {
        "delegate 0 (XnnpackBackend)": "760 µs", "outside delegates": "130 µs",
    }  # fmt: skip
    assert sme_routes(sme2) == {"stem": "named", "depthwise": "excluded", "last": "named"}
    assert sme_routes(off) == dict.fromkeys(("stem", "depthwise", "last"), "excluded")


def test_without_times_no_delegate_has_a_sum(tmp_path: Path) -> None:
    run = replace(on_off_run(), delegation=described(), platform="emulator", meaningful=False)
    assessment, report = read_run(write_run(tmp_path / "run", run))
    assert [delegate_times(e, report) for e in assessment.insight.experiments] == [{}, {}]
