"""What sums in half precision is widened; what mixes types is float32 already."""

from __future__ import annotations

import torch

from etprof.export.changes.half_sums import _narrow_results


def test_a_float_result_of_mixed_inputs_is_left_as_it_is() -> None:
    """A cell with `torch.zeros` beside half weights ended in "a defect of etprof itself"."""
    graph = torch.fx.Graph()
    source = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten.add.Tensor, (source, source))
    graph.output(node)
    node.meta["val"] = torch.empty(1, 4)
    assert list(_narrow_results(graph, node)) == []
    assert node.meta["val"].dtype == torch.float32
