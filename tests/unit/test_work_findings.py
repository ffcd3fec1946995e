"""F21 to F24: packing, weights packed again, bytes that cross delegates, needless work, at their edges."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis.findings.finding import Thresholds
from tests.known_runs import Experiment, Op, Run
from tests.unit.test_findings import convolutions, findings_of, fired, insight, one
from tests.unit.test_findings_hold import GEMM, MOPA, counted, described, node, traced
from tests.unit.test_kernel_evidence import make_trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LEFT = "kai_run_lhs_pack_x16p2vlx2_x16_sme"
RIGHT = "kai_run_rhs_pack_kxn_x16p2vlx2b_x16_x16_sme"
LINEAR = GEMM.format("PF16", 1)
Sized = dict[str, tuple[int, ...]]


def sized(*operators: tuple[str, Sized], svl_bits: int | None = 512) -> Run:
    """Operators that called each microkernel once, with these sizes; no times."""
    calls = [(name, dict.fromkeys(kernels, 1)) for name, kernels in operators]
    trace = make_trace("sme2", calls).model_dump(mode="json")
    trace["sme"]["svl_bits"] = svl_bits
    for described_as, (_, kernels) in zip(trace["operators"], operators, strict=True):
        for kernel in described_as["kernels"]:
            kernel["by_sizes"] = [
                {"sizes": kernels[kernel["name"]], "execution_calls": kernel["execution_calls"]}
            ]
    ops = [Op(name, 100) for name, _ in operators]
    return Run([Experiment("e", ops, sme="sme2", kernels=trace)], meaningful=False)


def packed_left(n: int) -> Run:
    """32 rows of 64 float16: a tile of 32 x 32 at 512 bits has all of 32 columns, two have 33."""
    return sized((LINEAR, {LEFT: (32, 64, 32), MOPA: (32, n, 64)}))


def packed_right(label: str) -> Run:
    """Something that packs its right side while it runs."""
    return sized((label, {LEFT: (32, 64, 32), RIGHT: (1, 64, 64), MOPA: (32, 64, 64)}))


def cut_apart(crossing: int, *, delegates: int = 2, readers: bool = True) -> Run:
    """Two delegates: `crossing` of 100 bytes leave one; the rest is read where it was made."""
    operators = [
        traced("a", "x.default", "x", delegate=0, output_bytes=100 - crossing, readers=1),
        traced("b", "x.default", "x", delegate=0, output_bytes=crossing, readers=1,
               inputs=["a", "weight", "getitem"]),
        traced("c", "x.default", "x", delegate=1, output_bytes=0, readers=1, inputs=["getitem_1"]),
    ]  # fmt: skip
    if not readers:
        operators = [{**each, "inputs": []} for each in operators]
    run = described(one(convolutions(10)), operators, node("Conv2d", "a"))
    assert run.delegation
    method: dict[str, Any] = run.delegation["methods"]["forward"]
    method["delegates"] = [{**method["delegates"][0], "name": f"d{i}"} for i in range(delegates)]
    return run


def test_packing_is_counted_against_outer_products(tmp_path: Path) -> None:
    """32 x 64 float16 are 64 vectors of 512 bits, moved twice; 32 steps of 2 x 2 are 128 products."""
    finding = fired(insight(tmp_path / "a", packed_left(32)))["F21"]
    (row,) = finding.evidence
    assert row.text == "128 vectors moved, 128 outer products (1.00×); tiles of 32 x 32"
    assert (finding.gain_ns, finding.time_ns) == (None, None)
    half = findings_of(insight(tmp_path / "b", packed_left(33)))
    assert "F21" in half.checked
    assert "F21" not in {each.rule for each in half.findings}


def test_small_packing_beside_large_products_is_none(tmp_path: Path) -> None:
    """The floor: 2 % of what all tiles compute."""
    large: tuple[str, Sized] = (
        GEMM.format("PF16", 2),
        {LEFT: (32, 64, 32), MOPA: (32, 32 * 49, 64)},
    )
    small: tuple[str, Sized] = (LINEAR, {LEFT: (32, 64, 32), MOPA: (32, 32, 64)})
    assert "F21" not in fired(insight(tmp_path / "a", sized(small, large)))


def needless(share: int, rewrite: str = "shared_results") -> Run:
    """A convolution that takes `share` of 100 us, of which the export says that a rewrite spares it."""
    operators = [
        traced("a", "x.default", "aten.conv2d.default", delegate=0),
        traced("b", "x.default", "aten.conv2d.default", delegate=0, rewrites=[rewrite]),
    ]
    ops = [Op("Convolution (NHWC, F32) IGEMM #1", 100 - share),
           Op("Convolution (NHWC, F32) IGEMM #2", share)]  # fmt: skip
    return described(one(ops), operators, node("Conv2d", "a"), node("Conv2d", "b"))


@pytest.mark.parametrize(
    ("rewrite", "text"),
    [
        ("shared_results", "1 operator computed again what was computed before"),
        ("early_selects", "1 operator on rows of which some are cut away"),
    ],
)
def test_needless_work_is_named_with_what_leaves_it_out(
    tmp_path: Path, rewrite: str, text: str
) -> None:
    finding = fired(insight(tmp_path / "r", needless(30, rewrite)))["F24"]
    assert finding.severity == "high"
    assert finding.summary.startswith(f"{text}: 30.0 µs")
    assert f"--rewrite {rewrite}` leaves it out" in finding.action
    # Nothing of it is outside the delegate.
    assert "F5" not in fired(insight(tmp_path / "again", needless(30, rewrite)))


def test_less_work_is_not_what_takes_an_operator_into_the_delegate(tmp_path: Path) -> None:
    outside = traced("b", "aten.x.out", "aten.x.default", instruction=1, rewrites=["early_selects"])
    ops = [Op("Convolution (NHWC, F32) IGEMM #1", 70), Op("native_call_x.out", 30, 1)]
    run = described(
        one(ops), [traced("a", "x.default", "aten.conv2d.default", delegate=0), outside],
        node("Conv2d", "a"),
    )  # fmt: skip
    assert "--rewrite" not in fired(insight(tmp_path / "r", run))["F5"].action


@pytest.mark.parametrize("rule", ["F21", "F22"])
def test_nothing_is_asked_without_sizes_or_counts(rule: str, tmp_path: Path) -> None:
    without = counted((32, 32, 64))
    kernels: dict[str, Any] = without.experiments[0].kernels  # type: ignore[assignment]
    for operator in kernels["operators"]:
        for kernel in operator["kernels"]:
            kernel["by_sizes"] = []
    for name, run in (("sizes", without), ("counts", one(convolutions(10)))):
        assert rule not in findings_of(insight(tmp_path / name, run)).checked


def test_an_unknown_vector_length_says_nothing(tmp_path: Path) -> None:
    run = sized((LINEAR, {LEFT: (32, 64, 32), RIGHT: (1, 64, 64), MOPA: (32, 32, 64)}),
                svl_bits=None)  # fmt: skip
    assert not {"F21", "F22"} & set(fired(insight(tmp_path / "a", run)))


def test_weights_packed_at_load_are_none(tmp_path: Path) -> None:
    finding = fired(insight(tmp_path / "a", packed_right(LINEAR)))["F22"]
    # 64 columns of 64 float16 and a bias of 2 bytes.
    (row,) = finding.evidence
    assert row.text == "8.1 KiB in each inference"
    at_load = packed_left(64)
    kernels: dict[str, Any] = at_load.experiments[0].kernels  # type: ignore[assignment]
    kernels["kernels"].append({"name": RIGHT, "load_calls": 1, "execution_calls": [0, 0]})
    found = findings_of(insight(tmp_path / "b", at_load))
    assert "F22" in found.checked
    assert "F22" not in {each.rule for each in found.findings}


def test_what_crosses_counts_once_and_what_stays_does_not(tmp_path: Path) -> None:
    finding = fired(insight(tmp_path / "a", cut_apart(crossing=25)))["F23"]
    assert finding.summary.startswith("25 B of results, 25.0 % of all that operators write")
    assert [row.label for row in finding.evidence] == ["b", "c"]


def test_a_result_that_two_delegates_read_counts_once(tmp_path: Path) -> None:
    run = cut_apart(crossing=0)
    assert run.delegation
    operators = run.delegation["methods"]["forward"]["operators"]
    operators.append(traced("o", "x.default", "x", output_bytes=100, readers=2))
    operators[0]["inputs"] = operators[2]["inputs"] = ["o"]
    finding = fired(insight(tmp_path / "a", run))["F23"]
    assert finding.summary.startswith("100 B of results, 50.0 %")


@pytest.mark.parametrize(
    "run", [cut_apart(50, delegates=1), replace(cut_apart(50), delegation=None),
            cut_apart(50, readers=False)],
)  # fmt: skip
def test_one_delegate_or_no_data_flow_is_not_asked(run: Run, tmp_path: Path) -> None:
    assert "F23" not in findings_of(insight(tmp_path / "a", run)).checked


def test_thresholds_decide(tmp_path: Path) -> None:
    limits = Thresholds(packing_ratio=2.0, boundary_share=0.5)
    runs: Sequence[tuple[str, Run]] = (("F21", packed_left(32)), ("F23", cut_apart(crossing=30)))
    for rule, run in runs:
        assert rule in fired(insight(tmp_path / rule, run))
        assert rule not in fired(insight(tmp_path / f"{rule}_strict", run), thresholds=limits)


def reading(*inputs: Sequence[str]) -> Run:
    """Linear layers of one delegate that pack their left sides, and what each reads."""
    labels = [GEMM.format("PF16", number) for number in range(1, len(inputs) + 1)]
    kernels: Sized = {LEFT: (32, 64, 32), MOPA: (32, 32, 64)}
    run = sized(*[(label, kernels) for label in labels])
    operators = [
        traced(f"o{at}", "linear.default", "aten.linear.default", delegate=0, macs=10**6,
               inputs=[*names, f"p_{at}_weight", "p_shared_bias"],
               origin={"module_path": f"layer{at}"})
        for at, names in enumerate(inputs)
    ]  # fmt: skip
    steps = [
        traced(name, "quantize_per_tensor.default", "q", is_quantization=True, inputs=["x"])
        for name in ("q1", "q2")
    ]
    nodes = [node("FullyConnected", f"o{at}") for at in range(len(inputs))]
    return described(run, [*steps, *operators], *nodes)


def test_joining_is_advised_where_another_layer_reads_the_same_input(tmp_path: Path) -> None:
    """Layers were to be joined with layers that read the same input, where there was none."""
    alone = fired(insight(tmp_path / "a", reading(["x"], ["y"])))["F21"]
    assert alone.action == "on a device, compare the latency with SME off"
    unknown = fired(insight(tmp_path / "b", packed_left(32)))["F21"]
    assert unknown.action == alone.action
    several = fired(insight(tmp_path / "c", reading(["x"], ["y"], ["q1"], ["q2"])))["F21"]
    assert several.action.startswith(
        "join layers that read the same input, layer0 with layer2, layer3; layer2 with layer0, "
        "layer3; layer3 with layer0, layer2: each packed row serves 32 columns"
    )


def test_small_products_are_joined_where_that_is_possible(tmp_path: Path) -> None:
    small = fired(insight(tmp_path / "a", sized((LINEAR, {LEFT: (1, 64, 1), MOPA: (1, 1, 64)}))))
    assert small["F20"].action == (
        "give them more rows, such as a larger batch; measure them with SME off too"
    )
