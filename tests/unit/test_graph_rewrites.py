"""What rewrites of ATen operators compute: the operator's own result, in the delegate's forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from etprof.backends.xnnpack.graph_rewrites import GRAPH_REWRITES

REPLACEMENTS: dict[str, Callable[..., Any]] = {
    name: replace for rewrite in GRAPH_REWRITES for name, replace in rewrite.replacements().items()
}
RANDOM = torch.Generator().manual_seed(3)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=RANDOM).to(dtype)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which operators ran, and on how many dimensions."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def recorded() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


def aten(name: str) -> Callable[..., Any]:
    _, packet, overload = name.split(".")
    operator: Callable[..., Any] = getattr(getattr(torch.ops.aten, packet), overload)
    return operator


HALF = torch.float16
IMAGE, ROWS, MATRIX = values(2, 3, 4, 5), values(2, 7, 6), values(3, 4)
QUERY, KEY, VALUE = values(2, 3, 5, 8), values(2, 3, 6, 8), values(2, 3, 6, 4)
GROUPED = values(2, 6, 5, 8)
"""Six heads of queries for three of keys."""
PADDED = (torch.arange(6) < torch.tensor([[4], [6]]))[:, None, None, :]
"""Two sequences, the first of which is two keys shorter."""
NOTHING_KEPT = torch.ones(5, 6, dtype=torch.bool).tril() & (torch.arange(5) != 2)[:, None]
"""A causal mask in which the third row attends to nothing."""
SAME: list[tuple[str, tuple[Any, ...], dict[str, Any], set[str]]] = [
    # The operator, its arguments, and what must not be in what it became.
    ("aten.gelu.default", (values(4, 9, dtype=HALF),), {}, set()),
    ("aten.gelu.default", (values(4, 9, dtype=HALF),), {"approximate": "tanh"}, set()),
    ("aten.silu.default", (values(4, 9, dtype=HALF),), {}, {"silu"}),
    ("aten.hardsigmoid.default", (4 * values(4, 9),), {}, {"hardsigmoid"}),
    ("aten.hardsigmoid.default", (4 * values(4, 9, dtype=HALF),), {}, {"hardsigmoid"}),
    ("aten.mean.dim", (IMAGE, [2, 3]), {}, set()),
    ("aten.mean.dim", (IMAGE, [-1, -2], False), {}, set()),
    ("aten.mean.dim", (IMAGE, [3]), {}, {"mean"}),
    ("aten.mean.dim", (IMAGE, [-1], True), {}, {"mean"}),
    ("aten.mean.dim", (ROWS, [2], True), {}, {"mean"}),
    ("aten.mean.dim", (ROWS.to(HALF), [-1]), {}, {"mean"}),
    ("aten.mean.dim", (ROWS, [-1]), {"dtype": torch.float32}, {"mean"}),
    ("aten.layer_norm.default", (ROWS, [6], values(6), values(6), 1e-3), {}, {"native_layer_norm"}),
    ("aten.layer_norm.default", (ROWS, [6]), {}, {"native_layer_norm"}),
    ("aten.layer_norm.default", (1e-2 * ROWS, [7, 6], values(7, 6), None, 1e-2), {}, set()),
    ("aten.layer_norm.default", (IMAGE, [5], values(5), values(5)), {}, set()),
    ("aten.layer_norm.default", (ROWS.to(HALF), [6], values(6, dtype=HALF)), {}, set()),
    ("aten.rms_norm.default", (ROWS, [6], values(6), 1e-3), {}, set()),
    ("aten.rms_norm.default", (1e-4 * ROWS, [6]), {}, set()),
    ("aten.rms_norm.default", (IMAGE, [4, 5], values(4, 5)), {}, set()),
    ("aten.pow.Tensor_Scalar", (ROWS, 2.0), {}, {"pow"}),
    ("aten.pow.Tensor_Scalar", (ROWS, 3), {}, {"pow"}),
    ("aten.pow.Tensor_Scalar", (ROWS, 3.0), {}, {"pow"}),
    ("aten.pow.Tensor_Scalar", (ROWS, 4), {}, {"pow"}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE), {}, {"expand"}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE), {"scale": 0.7}, {"expand"}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE, None, 0.0, True), {}, set()),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE, values(5, 6)), {}, set()),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE, values(2, 1, 5, 6)), {}, set()),
    ("aten.scaled_dot_product_attention.default", (QUERY[0], KEY[0], VALUE[0]), {}, {"expand"}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE, PADDED), {}, {"where", "expand"}),
    ("aten.scaled_dot_product_attention.default", (QUERY.to(HALF), KEY.to(HALF), VALUE.to(HALF), PADDED), {}, {"where", "expand"}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE, values(5, 6) > 0), {"scale": 0.3}, {"where", "any"}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE, NOTHING_KEPT), {}, {"where", "any"}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE), {"enable_gqa": True}, {"expand"}),
    ("aten.scaled_dot_product_attention.default", (GROUPED, KEY, VALUE), {"enable_gqa": True}, {"expand", "repeat_interleave"}),
    ("aten.scaled_dot_product_attention.default", (GROUPED, KEY, VALUE, PADDED), {"enable_gqa": True}, {"expand", "where"}),
    ("aten.scaled_dot_product_attention.default", (GROUPED, KEY, VALUE, values(2, 6, 5, 6)), {"enable_gqa": True}, {"expand"}),
    ("aten.scaled_dot_product_attention.default", (GROUPED, KEY, VALUE, None, 0.0, True), {"enable_gqa": True}, {"expand"}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY[:, :1], VALUE[:, :1]), {}, {"expand"}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY[:1, :1], VALUE[:1, :1], PADDED), {}, {"expand"}),
    ("aten.matmul.default", (QUERY, KEY.transpose(2, 3)), {}, {"expand"}),
    ("aten.matmul.default", (QUERY[0], VALUE[0, :, :1].repeat(1, 8, 1)), {}, {"expand"}),
    ("aten.select.int", (IMAGE, 1, 2), {}, {"select"}),
    ("aten.select.int", (IMAGE, -1, -2), {}, {"select"}),
    ("aten.select.int", (values(4, 1, 3), 1, 0), {}, {"select", "slice"}),
    ("aten.unbind.int", (IMAGE, 1), {}, {"unbind", "select"}),
    ("aten.unbind.int", (MATRIX,), {}, {"unbind", "select"}),
    ("aten.split_with_sizes.default", (IMAGE, [1, 3], 2), {}, {"split_with_sizes"}),
    ("aten.split.Tensor", (IMAGE, 2, -1), {}, {"split"}),
    ("aten.split.Tensor", (IMAGE, 5, 3), {}, {"split", "slice"}),
    ("aten.split.Tensor", (MATRIX, 2), {}, {"split"}),
    ("aten.unsqueeze.default", (MATRIX, 0), {}, {"unsqueeze"}),
    ("aten.unsqueeze.default", (MATRIX, -1), {}, {"unsqueeze"}),
    ("aten.squeeze.default", (values(1, 3, 1),), {}, {"squeeze"}),
    ("aten.squeeze.dim", (values(1, 3, 1), 0), {}, {"squeeze"}),
    ("aten.squeeze.dim", (values(1, 3, 1), -2), {}, {"squeeze"}),
    ("aten.squeeze.dims", (values(1, 3, 1), [0, 1, -1]), {}, {"squeeze"}),
    ("aten.expand.default", (MATRIX, [-1, 4]), {}, {"expand", "mul"}),
    ("aten.expand.default", (values(3, 1), [2, -1, 4]), {}, {"expand"}),
    ("aten.expand.default", (values(1, 4), [3, 4]), {"implicit": True}, {"expand"}),
    ("aten.cat.default", ([values(0), IMAGE], 2), {}, {"cat"}),
    ("aten.repeat_interleave.self_int", (IMAGE, 3, 1), {}, {"repeat_interleave"}),
    ("aten.repeat_interleave.self_int", (MATRIX, 2, -1), {"output_size": 8}, {"index_select"}),
    ("aten.mean.dim", (IMAGE, [1, 2]), {}, {"mean"}),
    ("aten.mean.dim", (IMAGE, [0, -2], True), {}, {"mean"}),
    ("aten.mean.dim", (ROWS, [1]), {}, {"mean"}),
    ("aten.mean.dim", (ROWS, [1, 2]), {}, {"mean"}),
    ("aten.group_norm.default", (values(2, 6, 4, 5), 3, values(6), values(6), 1e-3), {}, {"native_group_norm"}),
    ("aten.group_norm.default", (values(2, 6, dtype=HALF), 2), {}, {"native_group_norm"}),
    ("aten.instance_norm.default", (IMAGE, values(3), values(3), None, None, True, 0.1, 1e-3, True), {}, {"native_batch_norm", "repeat"}),
    ("aten.instance_norm.default", (ROWS, None, None, None, None, True, 0.1, 1e-5, True), {}, set()),
    ("aten.adaptive_avg_pool2d.default", (IMAGE, [2, 5]), {}, {"_adaptive_avg_pool2d"}),
    ("aten.adaptive_avg_pool2d.default", (IMAGE, [3, 2]), {}, {"_adaptive_avg_pool2d"}),
    ("aten.adaptive_avg_pool2d.default", (IMAGE.to(HALF), [3, 7]), {}, {"_adaptive_avg_pool2d"}),
    ("aten.adaptive_avg_pool1d.default", (ROWS, [1]), {}, {"_adaptive_avg_pool2d", "squeeze"}),
    ("aten.adaptive_avg_pool1d.default", (ROWS, [3]), {}, {"_adaptive_avg_pool2d", "squeeze"}),
    ("aten.adaptive_avg_pool1d.default", (ROWS, [4]), {}, {"_adaptive_avg_pool2d", "squeeze"}),
    ("aten.slice.Tensor", (IMAGE, 2, 0, 4, 2), {}, set()),
    ("aten.slice.Tensor", (IMAGE, -2, 1, 2**63 - 1, 2), {}, set()),
    ("aten.slice.Tensor", (values(9, 2), 0, None, None, 3), {}, set()),
    ("aten.slice.Tensor", (values(9, 2), 0, 2, 9, 3), {}, set()),
    ("aten.slice.Tensor", (values(9, 2), 0, -4, -1, 2), {}, set()),
    ("aten.slice.Tensor", (torch.arange(24).reshape(12, 2), 0, 1, 12, 5), {}, set()),
    ("aten.slice.Tensor", (torch.arange(24).reshape(12, 2), 0, 1, 9, 7), {}, set()),
    ("aten.slice.Tensor", (MATRIX.T, 0, 0, 4, 3), {}, set()),
    ("aten.slice.Tensor", (MATRIX.T, 0, 1, 3, 3), {}, set()),
    ("aten.roll.default", (IMAGE, [1, -2], [2, 3]), {}, {"roll", "index_select"}),
    ("aten.roll.default", (ROWS, [-9], [1]), {}, {"roll", "index_select"}),
    ("aten.roll.default", (ROWS, [7], [1]), {}, {"roll", "cat"}),
    ("aten.roll.default", (torch.arange(12).reshape(3, 4), [5]), {}, {"roll"}),
    ("aten.upsample_nearest2d.vec", (IMAGE, None, [2.0, 3.0]), {}, {"upsample_nearest2d"}),
    ("aten.upsample_nearest2d.vec", (IMAGE, [8, 5], None), {}, {"upsample_nearest2d"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "named", "absent"), SAME)
def test_what_replaces_an_operator_computes_the_same(
    name: str, arguments: tuple[Any, ...], named: dict[str, Any], absent: set[str]
) -> None:
    expected = aten(name)(*arguments, **named)
    with recorded() as recorder:
        found = REPLACEMENTS[name](*arguments, **named)
    pairs = zip(expected, found, strict=True) if isinstance(expected, list | tuple) else []
    for one, other in pairs or [(expected, found)]:
        assert (other.shape, other.dtype) == (one.shape, one.dtype)
        tolerance = 2e-3 if one.dtype is HALF else 1e-5
        assert torch.allclose(one, other, rtol=tolerance, atol=tolerance)
    assert not absent & set(recorder.names)


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("aten.gelu.default", (MATRIX,), {}),
    ("aten.silu.default", (MATRIX,), {}),
    ("aten.mean.dim", (IMAGE, None), {}),
    ("aten.mean.dim", (IMAGE, [2, 3], True), {}),
    ("aten.mean.dim", (values(4), [0]), {}),
    ("aten.mean.dim", (ROWS, [-1]), {"dtype": torch.float64}),
    ("aten.pow.Tensor_Scalar", (ROWS, 2), {}),
    ("aten.pow.Tensor_Scalar", (ROWS, 5), {}),
    ("aten.pow.Tensor_Scalar", (ROWS, 2.5), {}),
    ("aten.pow.Tensor_Scalar", (torch.arange(3), 3), {}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE, None, 0.1), {}),
    ("aten.scaled_dot_product_attention.default", (QUERY[0, 0], KEY[0, 0], VALUE[0, 0]), {}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY[:, :1], VALUE), {}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY, VALUE[:, :1]), {}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY[:1], VALUE[:1]), {}),
    ("aten.scaled_dot_product_attention.default", (QUERY, KEY[0], VALUE[0]), {}),
    (
        "aten.scaled_dot_product_attention.default",
        (QUERY, KEY, VALUE, torch.ones(5, 6, dtype=torch.int64)),
        {},
    ),
    ("aten.matmul.default", (MATRIX, MATRIX.T), {}),
    ("aten.matmul.default", (QUERY, KEY[0].transpose(1, 2)), {}),
    ("aten.expand.default", (torch.ones(1, 2, dtype=torch.int64), [3, 2]), {}),
    ("aten.cat.default", ([IMAGE, IMAGE], 1), {}),
    ("aten.cat.default", ([values(0, dtype=HALF), IMAGE], 1), {}),
    ("aten.repeat_interleave.self_int", (MATRIX, 2), {}),
    ("aten.repeat_interleave.self_int", (torch.arange(3), 2, 0), {}),
    ("aten.mean.dim", (MATRIX, [0, 1]), {}),
    ("aten.mean.dim", (torch.arange(6).reshape(2, 3), [0]), {}),
    ("aten.group_norm.default", (torch.arange(6).reshape(2, 3), 3), {}),
    ("aten.instance_norm.default",
     (IMAGE, None, None, values(3), values(3), False, 0.1, 1e-3, True), {}),
    ("aten.adaptive_avg_pool2d.default", (IMAGE, [1, 1]), {}),
    ("aten.adaptive_avg_pool2d.default", (values(3, 4, 5), [2, 5]), {}),
    ("aten.adaptive_avg_pool2d.default", (values(1, 1, 50, 50), [7, 7]), {}),
    ("aten.adaptive_avg_pool1d.default", (MATRIX, [2]), {}),
    ("aten.slice.Tensor", (IMAGE, 2, 0, 4, 1), {}),
    ("aten.slice.Tensor", (IMAGE, 3, 0, 4, 2), {}),
    ("aten.slice.Tensor", (IMAGE, 2, 4, 9, 2), {}),
    ("aten.slice.Tensor", (values(1, 1, 1, 1, 8, 1), 4, 0, 8, 2), {}),
    ("aten.upsample_nearest2d.vec", (IMAGE, None, [1.5, 2.0]), {}),
    ("aten.upsample_nearest2d.vec", (IMAGE, [9, 10], None), {}),
    ("aten.upsample_nearest2d.vec", (IMAGE, [2, 5], None), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "named"), REFUSED)
def test_what_the_delegate_takes_or_nobody_can_replace_stays(
    name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    assert REPLACEMENTS[name](*arguments, **named) is NotImplemented


@pytest.mark.parametrize("name", ["aten.mean.dim", "aten.layer_norm.default"])
def test_sums_of_halves_are_in_float32(name: str) -> None:
    """A mean of 4 096 halves that are 30 each is beyond what a half holds on its way."""
    value = torch.full((2, 4096), 30.0, dtype=HALF)
    value[:, ::2] = 34.0
    found = REPLACEMENTS[name](value, [-1] if name == "aten.mean.dim" else [4096])
    if name == "aten.mean.dim":
        assert found.tolist() == [32.0, 32.0]
    else:
        assert torch.allclose(found.float().abs(), torch.ones(()), atol=1e-3)
