"""Samples and layers of a quantisation, taps of its values, texts that are read, delegates' graphs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import nn
from torch.nn import functional

from etprof.analysis.numeric_gap import explain_dynamic_product, explain_error
from etprof.backends.registry import BY_NAME, DEFAULT
from etprof.backends.xnnpack import sme
from etprof.backends.xnnpack.graph import XnnpackGraph, XnnpackNode
from etprof.base.errors import ExportError, UsageError
from etprof.base.upstream_noise import quiet_upstream
from etprof.export import lowering, upstream
from etprof.export.changes.rewriting import Rewriting
from etprof.export.changes.scopes import parse_scopes
from etprof.export.quality import text_quality
from etprof.export.quality.reading import last_scores, score_text
from etprof.export.request import parse_precision
from etprof.model_registry.eager_model import ExportMethod
from etprof.numerics import session, taps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def lone_edge(**changed: Sequence[str]) -> Any:  # noqa: ANN401 - as much of a manager as is read
    """Methods and the buffers that they change."""
    signatures = {
        name: SimpleNamespace(
            buffers_to_mutate={f"out_{buffer}": buffer for buffer in buffers},
            inputs_to_buffers={f"b_{buffer}": buffer for buffer in (*buffers, "read")},
        )
        for name, buffers in changed.items()
    }
    return SimpleNamespace(
        methods=set(changed),
        exported_program=lambda name: SimpleNamespace(graph_signature=signatures[name]),
    )


@pytest.mark.parametrize(
    ("changed", "shared", "answer"),
    [
        ({"prefill": ["k", "v"], "decode": ["k", "v"]}, {"k", "v"}, True),
        ({"prefill": ["k", "v"], "decode": ["k", "v"]}, {"k"}, False),
        ({"prefill": ["k"], "decode": ["k", "lone"]}, {"k", "x"}, True),
        ({"prefill": ["k"], "decode": ["v"]}, {"k", "v"}, False),
        ({"forward": []}, set(), False),
    ],
)
def test_methods_share_an_arena_where_all_that_both_change_is_shared(
    changed: dict[str, list[str]], shared: set[str], answer: bool
) -> None:
    edge = lone_edge(**changed)
    assert lowering._changes_shared_state(edge, shared) is answer
    for name, buffers in changed.items():
        assert lowering.carried_buffers(edge, name) == set(buffers)
        assert lowering._mutable_buffers(edge, name) == [f"b_{buffer}" for buffer in buffers]


ROW = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("samples", "free", "problem"),
    [
        ([(ROW, 1)], False, None), ([(ROW[:1], 1)], True, None),
        ([(ROW, 1), (ROW,)], False, "sample 1 of method 'f' has 1 inputs, the example has 2"),
        ([(ROW[:1], 1)], False,
         r"sample 0 of method 'f': input 0 is float32\[1, 3\], the example is float32\[2, 3\]"),
        ([(ROW.half(), 1)], True,
         r"input 0 is float16\[2, 3\], the example is float32\[2, 3\]"),
        ([(ROW, 1.5)], False, "input 1 is float, the example is int$"),
    ],
)  # fmt: skip
def test_samples_look_like_the_example(
    samples: list[tuple[Any, ...]], free: bool, problem: str | None
) -> None:
    """Where shapes are free, the type alone counts."""
    method = ExportMethod(nn.Identity(), (ROW, 1), dynamic_shapes=({},) if free else None)
    if problem is None:
        lowering.check_samples("f", method, samples)
    else:
        with pytest.raises(ExportError, match=problem):
            lowering.check_samples("f", method, samples)


class Rows(nn.Module):
    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, 4) for size in sizes)


@pytest.mark.parametrize(
    ("precision", "scopes", "count", "left"),
    [
        ("8da4w", (), 2, ("layers.1",)),
        ("8da4w_b64", (), 1, ("layers.0", "layers.1")),
        ("8da4w", ("layers.2=fp32",), 1, ("layers.1", "layers.2")),
        ("8da4w", ("layers.2=8da4w_b64",), 2, ("layers.1",)),
    ],
)
def test_layers_whose_rows_divide_into_blocks_are_quantised(
    precision: str, scopes: tuple[str, ...], count: int, left: tuple[str, ...]
) -> None:
    method = ExportMethod(Rows(32, 33, 64), ())
    with quiet_upstream():
        _, report = lowering.quantize_method(
            "f", method, parse_precision(precision), BY_NAME[DEFAULT], Rewriting(),
            scopes=parse_scopes(scopes),
        )  # fmt: skip
    assert (report.quantized_operators, report.float_layers) == (count, left)
    assert report.calibration_samples == 0
    layers = cast("Rows", method.module).layers
    whole = [isinstance(layer.weight, upstream.TorchAOTensor) for layer in layers]
    assert whole == [f"layers.{number}" not in left for number in range(3)]


def test_a_model_without_such_layers_says_what_to_do() -> None:
    with pytest.raises(
        ExportError,
        match=r"^method 'f' has nothing that 4-bit quantisation \(linear layers with rows of a "
        r"multiple of 32\) can quantise; export it as fp16$",
    ):
        lowering.quantize_method(
            "f", ExportMethod(Rows(31), ()), parse_precision("8da4w"), BY_NAME[DEFAULT], Rewriting()
        )


class Observed(nn.Module):
    """As a quantiser prepares it: a graph that notes what it is called with."""

    total: torch.Tensor

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.keeps, self.calls = keeps, list[list[float]]()
        self.graph = torch.fx.Graph()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(x.tolist())
        if self.keeps:
            self.total.add_(x)
        return x


@pytest.mark.parametrize(
    ("keeps", "samples", "calls"),
    [
        (False, 0, [[1, 2, 4]]),
        # Of a later state too: four inferences in a row, with shifted inputs.
        (True, 0, [[1, 2, 4], [4, 1, 2], [2, 4, 1], [1, 2, 4]]),
        (True, 2, [[5, 6, 7], [5, 6, 7]]),
    ],
)
def test_what_keeps_a_state_is_observed_four_times(
    monkeypatch: pytest.MonkeyPatch, keeps: bool, samples: int, calls: list[list[float]]
) -> None:
    monkeypatch.setattr(upstream, "prepare_pt2e", lambda graph, _: graph)
    monkeypatch.setattr(upstream, "convert_pt2e", lambda graph: graph)
    graph, sample = Observed(keeps=keeps), (torch.tensor([5.0, 6.0, 7.0]),)
    method = ExportMethod(graph, (torch.tensor([1.0, 2.0, 4.0]),), calibration=[sample] * samples)
    given = method.calibration or [method.inputs]
    _, report = lowering._convert_graph(graph, method, None, given)
    assert graph.calls == calls
    assert (report.calibration_samples, report.quantized_operators) == (max(samples, 1), 0)
    assert graph.total.tolist() == [0, 0, 0]


# ---- taps


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line, self.bare = nn.Linear(4, 2), nn.Linear(2, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.tanh(self.bare(self.line(x)))
        return y


def launched(program: torch.export.ExportedProgram, *, times: float = 1.0) -> Any:  # noqa: ANN401
    """A method whose program computed what eager does, so many times as large after `line`."""
    chosen = taps.choose_taps(program.graph, ())
    values, ones = dict[str, torch.Tensor](), torch.ones(1, 4)
    state = program.state_dict
    line = functional.linear(ones, state["line.weight"], state["line.bias"]) * times
    bare = functional.linear(line, state["bare.weight"])
    for tap, value in zip(chosen, (line, bare, torch.tanh(bare)), strict=True):
        values[tap.tapped_node.name] = value
    reads = {name: values[name].clone for name in values}
    programs = SimpleNamespace(traced=program, inputs=[ones], tapped={"p": chosen})
    return programs, SimpleNamespace(values=reads), [tap.tapped_node.name for tap in chosen]


@pytest.fixture(scope="module")
def layers() -> torch.export.ExportedProgram:
    model = Layers().eval().requires_grad_(requires_grad=False)
    model.line.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 2, 0, 0]]))
    model.line.bias.copy_(torch.tensor([10.0, -20.0]))
    model.bare.weight.copy_(torch.tensor([[1.0, 0], [0, 1], [0.1, 0.1]]))
    return torch.export.export(model, (torch.ones(1, 4),))


def test_an_operator_answers_for_its_own_gap_alone(layers: torch.export.ExportedProgram) -> None:
    programs, outputs, names = launched(layers, times=1.01)
    gaps = session.compare_own(programs, outputs, parse_precision("fp32"))
    assert [round(gaps[name][0].relative, 6) for name in names] == [0.01, 0.0, 0.0]
    summed, sizes = (4.0, 2.0, 1.0), (2, 3, 3)
    assert [gaps[name][1] for name in names] == [
        explain_error("fp32", products, size) for products, size in zip(summed, sizes, strict=True)
    ]  # fmt: skip


def test_halves_explain_what_is_summed_up_from_the_bias_on(
    layers: torch.export.ExportedProgram,
) -> None:
    """Of line: b = (10, -20), z = (11, -18); b² + b·z + z² over z², element by element."""
    programs, outputs, names = launched(layers)
    gaps = session.compare_own(programs, outputs, parse_precision("fp16"))
    growth = (100 + 110 + 121 + 400 + 360 + 324) / (121 + 324)
    explained = [gaps[name][1] for name in names]
    assert explained[0] == explain_error("fp16", 4.0, 2, growth=growth)
    assert explained[1] == explain_error("fp16", 2.0, 3, growth=1.0)
    assert explained[2] == explain_error("fp16", 1.0, 3)
    dynamic = session.compare_own(programs, outputs, parse_precision("int8_dynamic"))
    assert dynamic[names[0]][1] == explain_dynamic_product(2)
    assert dynamic[names[2]][1] == explain_error("int8_dynamic", 1.0, 3)
    # Of values near zero too, tanh makes no error larger.
    programs, outputs, names = launched(layers, times=0.01)
    gaps = session.compare_own(programs, outputs, parse_precision("fp16"))
    assert gaps[names[2]][1] == explain_error("fp16", 1.0, 3)


def test_taps_are_checked_by_the_output_that_differs_most() -> None:
    def reads(*values: float) -> list[session.Read]:
        return [torch.tensor([value]).clone for value in values]

    outputs = session.ModeOutputs(outputs=reads(1, 2, 4), tapped_outputs=reads(1, 3, 5))
    assert session._check_taps(outputs).relative == pytest.approx(0.5)
    assert session._array(torch.tensor([1.5], dtype=torch.bfloat16)).tolist() == [1.5]


def test_a_method_is_the_one_that_is_named_or_forward_or_the_first() -> None:
    methods: Mapping[str, Any] = {"encode": None, "forward": None}
    names = [session._choose_method(methods, name) for name in (None, "encode")]
    assert names == ["forward", "encode"]
    assert session._choose_method({"a": None, "b": None}, None) == "a"  # type: ignore[dict-item]
    with pytest.raises(UsageError, match=r"no method 'c'; it has encode, forward$"):
        session._choose_method(methods, "c")


@pytest.mark.parametrize(("graphs", "name"), [(63, "n63"), (64, None)])
def test_a_node_is_followed_through_64_graphs(graphs: int, name: str | None) -> None:
    source = SimpleNamespace(name=f"n{graphs}", graph_id=7, from_node=[])
    for number in range(graphs):
        source = SimpleNamespace(name=f"m{number}", graph_id=1, from_node=[source])
    node: Any = SimpleNamespace(name="x", meta={"from_node": [source]})
    assert taps._find_source(node, 7) == name


# ---- texts


class Steps(nn.Module):
    """A language model of 20 tokens that is sure of the next number, by its token alone."""

    def __init__(self, sure: float = 20.0) -> None:
        super().__init__()
        self.table = nn.Linear(20, 20, bias=False)
        self.table.weight.data = (torch.eye(20).roll(1, 0)) * sure
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        cast("torch.Tensor", self.calls).add_(position + 1)
        scores: torch.Tensor = self.table(functional.one_hot(token.reshape(1, 1), 20).float())
        return scores


def step_method(model: nn.Module) -> dict[str, ExportMethod]:
    inputs = (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    return {"forward": ExportMethod(model, inputs)}


def counting(count: int) -> text_quality.Text:
    return text_quality.Text(tuple(number % 20 for number in range(count)), "numbers")


@pytest.mark.parametrize(
    ("length", "constants", "sizes"),
    [
        # Tokens that are scored, of the prompt, and new ones.
        (200, {}, (128, 32, 32)),
        (200, {"get_max_context_len": 40, "get_max_seq_len": 20}, (40, 20, 20)),
        (200, {"get_max_seq_len": 21}, (21, 10, 11)),
        (18, {}, (17, 8, 9)),
    ],
)
def test_a_text_is_read_as_far_as_the_cache_goes(
    length: int, constants: dict[str, int], sizes: tuple[int, int, int]
) -> None:
    reader, model = text_quality.TextReader(counting(length)), Steps().eval()
    reader.read_eager(step_method(model), constants)
    assert reader.problem == ""
    count, prompt, new = sizes
    expected = reader._expected
    assert expected is not None
    assert expected.log_probabilities.shape == (count, 20)
    assert expected.tokens == [number % 20 for number in range(prompt, prompt + new)]
    # What it counted while it read is gone.
    assert cast("torch.Tensor", model.calls).tolist() == [0]
    scores = score_text(
        lambda token, _: last_scores(model.table.weight[:, token][None, None]), counting(count).ids
    )
    wrong = [*expected.tokens[:3], 0, *expected.tokens[4:]]
    for tokens, same in ((expected.tokens, new), (wrong, 3)):
        quality = reader._judge(scores, tokens, "x", "fp32")
        assert (quality.same_tokens, quality.same_top1) == (same, 1.0)
        assert (quality.tokens, quality.prompt_tokens, quality.new_tokens) == sizes
        assert (quality.vocabulary, quality.divergence_nats) == (20, 0.0)
        # One of twenty that has 20 nats more than the others.
        assert quality.perplexity == pytest.approx(1 + 19 * math.exp(-20))
        assert quality.verdict.answer == "passed"


def test_a_program_is_compared_token_by_token() -> None:
    reader, model = text_quality.TextReader(counting(18)), Steps(2.0).eval()
    reader.read_eager(step_method(model), {})
    even = torch.zeros(17, 20)
    even[:4] = torch.eye(20).roll(1, 1)[:4]
    quality = reader._judge(even, [0] * 9, "x", "fp32")
    assert quality.same_top1 == pytest.approx(4 / 17)
    assert quality.same_tokens == 0
    probability = math.e / (math.e + 19)
    expected = (4 * -math.log(probability) + 13 * math.log(20)) / 17
    assert quality.perplexity == pytest.approx(math.exp(expected))
    assert quality.eager_perplexity == pytest.approx((math.exp(2) + 19) / math.exp(2))


def test_an_id_that_the_model_lacks_is_named() -> None:
    model = Steps().eval()
    model.table = nn.Linear(20, 19, bias=False)
    reader = text_quality.TextReader(counting(25))
    reader.read_eager(step_method(model), {})
    assert reader.problem.startswith("the text has the id 19 and the model 19; give another")
    reader = text_quality.TextReader(counting(19))
    reader.read_eager(step_method(model), {})
    assert not reader.problem


# ---- what a delegate's nodes become


SQUARE = {
    "kernel_height": 1, "kernel_width": 1, "subsampling_height": 1, "subsampling_width": 1,
    "groups": 1, "padding_top": 0, "padding_right": 0, "padding_bottom": 0, "padding_left": 0,
    "group_input_channels": 8, "group_output_channels": 4,
}  # fmt: skip
WIDE = {"kernel_height": 3, "kernel_width": 3}
DEPTHWISE = {**WIDE, "groups": 8, "group_input_channels": 1, "group_output_channels": 1}


def product(kind: str, types: str, **changed: int) -> XnnpackNode:
    *inputs, output = types.split()
    return XnnpackNode(0, kind, 1, (0, 1), 2, tuple(inputs), output, {**SQUARE, **changed})


@pytest.mark.parametrize(
    ("kind", "types", "changed", "sme2"),
    [
        ("Conv2d", "fp32 fp32 fp32", WIDE, "IGEMM on PF32"),
        ("Conv2d", "fp16 fp32 fp16", WIDE, "IGEMM on PF16"),
        ("Conv2d", "qint8 qcint8 qint8", WIDE, "IGEMM on PQS8"),
        # Of one scale it makes one for each channel, but not of a product.
        ("Conv2d", "qint8 qint8 qint8", WIDE, "IGEMM on PQS8"),
        ("Conv2d", "qint8 qint8 qint8", {}, ""),
        ("Conv2d", "fp32 fp32 fp32", {}, "GEMM on PF32"),
        # One by one it is a product, whose weights are float32.
        ("Conv2d", "fp16 fp32 fp16", {}, ""),
        *(("Conv2d", "fp16 fp32 fp16", {name: size}, "IGEMM on PF16") for name, size in (
            ("kernel_height", 2), ("kernel_width", 2), ("subsampling_height", 2), ("groups", 2),
            ("subsampling_width", 2), ("padding_top", 1), ("padding_right", 1),
            ("padding_bottom", 1), ("padding_left", 1))),
        ("Conv2d", "fp32 fp32 fp32", DEPTHWISE, ""),
        ("Conv2d", "fp16 fp32 fp16", {"group_input_channels": 1}, ""),
        ("DepthwiseConv2d", "fp32 fp32 fp32", WIDE, ""),
        ("Conv2d", "qdint8 qcint8 fp32", WIDE, ""),
        ("Conv2d", "fp32 fp32 fp16", WIDE, ""),
        ("ConvTranspose2d", "fp32 fp32 fp32", WIDE, ""),
        ("ConvTranspose2d", "qint8 qcint8 qint8", WIDE, "IGEMM on PQS8"),
        ("FullyConnected", "fp16 fp16 fp16", {}, "GEMM on PF16"),
        ("FullyConnected", "fp16 fp32 fp16", {}, ""),
        ("FullyConnected", "qdint8 qcint8 fp32", {}, "GEMM on QP8"),
        ("FullyConnected", "qdint8 qcint4 fp32", {}, "GEMM on QP8"),
        ("FullyConnected", "qdint8 qbint4 fp32", {}, ""),
        ("FullyConnected", "qint8 qcint8 qint8", {}, "GEMM on PQS8"),
        ("BatchMatrixMultiply", "fp32 fp32 fp32", {}, "GEMM on PF32"),
        ("BatchMatrixMultiply", "fp32 qcint8 fp32", {}, ""),
        ("BatchMatrixMultiply", "qint8 qint8 qint8", {}, ""),
    ],
)  # fmt: skip
def test_which_products_take_sme2(
    kind: str, types: str, changed: dict[str, int], sme2: str
) -> None:
    """XNNPACK's own choice by types and shape, xnn_subgraph_optimize_packed_lhs."""
    prediction = sme.predict(product(kind, types, **changed))
    assert prediction.sme2 is bool(sme2)
    if sme2:
        assert (prediction.reason, prediction.packed_type) == (sme2, sme2.rsplit(maxsplit=1)[-1])


@pytest.mark.parametrize(
    ("kind", "changed", "precisions"),
    [
        ("Conv2d", WIDE, ("fp32", "fp16", "int8")), ("Conv2d", {}, ("fp32", "int8")),
        ("Conv2d", DEPTHWISE, ()), ("ConvTranspose2d", WIDE, ("int8",)),
        ("FullyConnected", {}, ("fp32", "fp16", "int8")),
        ("BatchMatrixMultiply", {}, ("fp32", "fp16")), ("Softmax", {}, None),
    ],
)  # fmt: skip
def test_in_which_precisions_a_product_would_take_sme2(
    kind: str, changed: dict[str, int], precisions: tuple[str, ...] | None
) -> None:
    assert sme.sme2_precisions(product(kind, "fp32 fp32 fp32", **changed)) == precisions


def test_a_value_is_read_by_nodes_and_by_the_caller() -> None:
    nodes = [
        XnnpackNode(index, "Add", index, inputs, index + 10, ("fp32", "fp32"), "fp32", {})
        for index, inputs in enumerate([(1, 2), (10, 10), (10, 11), (12, 2)])
    ]
    graph = XnnpackGraph(tuple(nodes), frozenset(), frozenset({13, 10}))
    assert [graph.count_readers(node) for node in nodes] == [3, 1, 1, 1]
