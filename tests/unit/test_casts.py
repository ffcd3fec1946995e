"""A copy outside the delegate that changes the type is a conversion; one of the order alone, layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from etprof.export import upstream
from etprof.export.operators import is_cast
from tests.known_runs import Op
from tests.unit.test_findings import convolutions, fired, insight, one
from tests.unit.test_findings_hold import described, traced

if TYPE_CHECKING:
    from pathlib import Path

CAST, LAYOUT = ("Elementwise", "quantise and convert"), ("Data Movement", "layout")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"is_cast": True, "input_bytes": 64, "output_bytes": 64}, CAST),
        ({"is_cast": False, "input_bytes": 64, "output_bytes": 64}, LAYOUT),
        ({"input_bytes": 64, "output_bytes": 32}, CAST),
        ({"input_bytes": 64, "output_bytes": 64}, LAYOUT),
        ({}, LAYOUT),
    ],
    ids=["int32 to float32", "order alone", "earlier report", "earlier, same size", "no bytes"],
)
def test_a_copy_is_of_the_class_that_its_types_tell(
    tmp_path: Path, fields: dict[str, object], expected: tuple[str, str]
) -> None:
    """Three casts of a keyword spotter counted as layout, and F2 advised another layout."""
    name = "_to_dim_order_copy"
    operator = traced("o1", f"{name}.default", "aten._to_copy.default", instruction=1, **fields)
    run = described(one([*convolutions(100), Op(f"native_call_{name}.out", 50, 1)]), [operator])
    (experiment,) = insight(tmp_path / "a", run).experiments
    assert experiment.details[-1].row.operator_class == expected


def test_a_delegated_transpose_of_a_quantised_value_stays_layout(tmp_path: Path) -> None:
    ops = [Op("Transpose (ND, X8) #1", 10), *convolutions(100)]
    (experiment,) = insight(tmp_path / "a", one(ops)).experiments
    assert experiment.details[0].row.operator_class == LAYOUT


def test_the_export_tells_a_cast_by_its_types() -> None:
    class Copies(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (
                x.to(torch.int32),
                x.to(memory_format=torch.channels_last),
                x + x.to(torch.half),
                x > 0,
            )

    exported = torch.export.export(Copies(), (torch.ones(1, 2, 3, 4),))
    with upstream.quiet_upstream():
        from executorch.exir import to_edge

        graph = to_edge(exported).exported_program().graph
    casts = [is_cast(node) for node in graph.nodes if node.op == "call_function"]
    # A comparison has another type too, and copies nothing.
    assert casts == [True, False, True, True, False, False]


def test_casts_around_a_norm_are_counted_apart(tmp_path: Path) -> None:
    """A half-precision norm is computed between casts: they are a part of what it costs, and said."""
    cast = "native_call__to_dim_order_copy.out"
    ops = [*convolutions(100), Op(cast, 40, 1), Op("native_call_native_layer_norm.out", 40, 2)]
    traced_as = "aten.layer_norm.default"
    operators = [
        traced("to", "_to_dim_order_copy.default", traced_as, instruction=1, is_cast=True,
               origin={"module_path": "norm"}),
        traced("norm", "native_layer_norm.default", traced_as, instruction=2,
               origin={"module_path": "norm"}),
    ]  # fmt: skip
    finding = fired(insight(tmp_path / "r", described(one(ops), operators)))["F1"]
    assert finding.summary.startswith("2 operators of norms, 1 of them casts: ")
