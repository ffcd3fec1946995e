"""What an export makes of small traced models: types, plans, sums, taps, and words of a text."""

from __future__ import annotations

import math
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import nn
from torch.nn import functional

from etprof.base.errors import ExportError
from etprof.base.upstream_noise import quiet_upstream
from etprof.export import lowering, operators
from etprof.export.changes import half_constants, half_sums, volumes
from etprof.export.changes.failed_lowering import blame, failing_node, root_cause
from etprof.export.changes.scopes import parse_scopes
from etprof.export.changes.shared_kernels import separate_kernels
from etprof.export.memory_plan import draw_memory, measure_external, measure_program
from etprof.model_registry.eager_model import ExportMethod
from etprof.run.delegation import NO_REASON, NO_RULE, NOT_ASKED, Origin, PlannedTensor, SourceLine

if TYPE_CHECKING:
    from pathlib import Path

ATEN = torch.ops.aten


# ---- files and memory


def external_file(folder: Path, *, length: int = 40, mark: bytes = b"FT01", cut: int = 0) -> Path:
    """A .ptd whose FlatBuffer takes 48 to 64 and whose 100 bytes of weights follow."""
    head = b"\0\0\0\0" + mark + b"FH01" + struct.pack("<I4Q", length, 48, 16, 64, 100)
    file = folder / "w.ptd"
    file.write_bytes((head + bytes(116))[: 164 - cut])
    return file


def test_weights_outside_a_program_are_those_of_its_header(tmp_path: Path) -> None:
    assert measure_external(external_file(tmp_path)) == 100


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ({"cut": 1}, "is shorter than its header says"),
        ({"cut": 116}, "is shorter than its header says"),
        ({"cut": 117}, "ends within its header"),
        ({"length": 39}, "is not a .ptd as this ExecuTorch writes it"),
        ({"mark": b"ET12"}, "is not a .ptd as this ExecuTorch writes it"),
        ({"mark": b"FTab"}, "is not a .ptd as this ExecuTorch writes it"),
    ],
)
def test_a_damaged_file_of_weights_is_refused(
    tmp_path: Path, damage: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ExportError, match=problem):
        measure_external(external_file(tmp_path, **damage))


def program_content(*constants: bytes) -> SimpleNamespace:
    delegates = [SimpleNamespace(data=bytes(size)) for size in (30, 12)]
    return SimpleNamespace(
        program=SimpleNamespace(
            backend_delegate_data=delegates,
            constant_buffer=[SimpleNamespace(storage=constant) for constant in constants],
        ),
        named_data=SimpleNamespace(buffers=[bytes(5), SimpleNamespace(buffer=bytes(6))]),
    )


def test_the_bytes_of_a_program_are_split_by_purpose(tmp_path: Path) -> None:
    """Of 200 bytes 64 are the FlatBuffer's, 42 the delegates', 20 constants: 74 fill up."""
    pte = tmp_path / "m.pte"
    head = b"\0\0\0\0ET12eh00" + struct.pack("<IQQQ", 32, 64, 64, 136)
    pte.write_bytes(head.ljust(200, b"\0"))
    size = measure_program(pte, program_content(b"abcd", b"efghi"), None)
    assert (size.total_bytes, size.program_bytes) == (200, 64)
    assert (size.delegate_bytes, size.constant_bytes, size.padding_bytes) == (42, 20, 74)
    assert (size.external_bytes, size.external_weight_bytes) == (0, None)
    beside = measure_program(pte, program_content(), external_file(tmp_path))
    assert (beside.external_bytes, beside.external_weight_bytes) == (164, 100)
    assert beside.constant_bytes == 11


def test_a_program_without_segments_is_all_its_own(tmp_path: Path) -> None:
    pte = tmp_path / "m.pte"
    pte.write_bytes(b"\0\0\0\0ET12".ljust(72, b"\0"))
    size = measure_program(pte, program_content(b"abcd"), None)
    assert (size.total_bytes, size.program_bytes, size.padding_bytes) == (72, 72, 0)
    assert (size.delegate_bytes, size.constant_bytes) == (0, 0)
    pte.write_bytes(b"\0\0\0\0FT12".ljust(72, b"\0"))
    with pytest.raises(ExportError, match="is not an ExecuTorch program"):
        measure_program(pte, program_content(), None)


def planned(name: str, arena: int, offset: int, size: int, lifetime: str) -> PlannedTensor:
    first, last = map(int, lifetime.split("-"))
    return PlannedTensor(
        node=name, module_path="m", arena=arena, offset_bytes=offset, size_bytes=size,
        first_use=first, last_use=last,
    )  # fmt: skip


def test_a_drawing_shows_who_shares_a_place_and_how_much_lives() -> None:
    plan = [planned("a", 1, 0, 8, "0-1"), planned("b", 1, 0, 4, "2-2"),
            planned("c", 2, 16, 2, "1-2"), planned("d", 1, 1024, 1, "1-1")]  # fmt: skip
    drawing = draw_memory({"one": plan, "two": []})
    assert drawing["displayTimeUnit"] == "ns"
    events = drawing["traceEvents"]
    names = [(e["name"], e["pid"], e["tid"], e["args"]["name"]) for e in events if e["ph"] == "M"]
    assert names == [
        ("process_name", 1, 0, "one: planned memory, 1 µs = 1 step"),
        ("thread_name", 1, 1, "arena 1 at 0 B"), ("thread_name", 1, 2, "arena 1 at 1,024 B"),
        ("thread_name", 1, 3, "arena 2 at 16 B"),
        ("process_name", 2, 0, "two: planned memory, 1 µs = 1 step"),
    ]  # fmt: skip
    slices = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [("a", 1, 0, 2), ("b", 1, 2, 1), ("c", 3, 1, 2), ("d", 2, 1, 1)]
    levels = [(e["ts"], *e["args"].values()) for e in events if e["ph"] == "C"]
    assert levels == [(0, 8, 0), (1, 9, 2), (2, 4, 2), (3, 0, 0)]


# ---- operators of a graph


def node_of(target: Any, *values: torch.Tensor, **keywords: object) -> torch.fx.Node:  # noqa: ANN401
    graph = torch.fx.Graph()
    sources = []
    for number, value in enumerate(values):
        sources.append(graph.placeholder(f"x{number}"))
        sources[-1].meta["val"] = value
    node = graph.call_function(target, tuple(sources), cast("Any", keywords))
    node.meta["val"] = target(*values, **keywords)
    return node


@pytest.mark.parametrize(
    ("after", "is_cast"), [(torch.float16, True), (torch.int64, True), (torch.float32, False)]
)
def test_a_cast_gives_another_type(after: torch.dtype, is_cast: bool) -> None:
    node = node_of(ATEN._to_copy.default, torch.zeros(2), dtype=after)
    assert operators.is_cast(node) is is_cast
    assert not operators.is_cast(node_of(ATEN.gt.Tensor, torch.zeros(2), torch.zeros(2)))
    assert not operators.is_cast(node_of(ATEN.isnan.default, torch.zeros(2)))


def test_why_an_operator_is_outside() -> None:
    node = node_of(ATEN.relu.default, torch.zeros(2))
    ruled = frozenset({"relu.default"})
    explain = [
        operators.PartitionRules(reasons, targets).explain(node)
        for reasons, targets in (
            ({node.name: "too wide"}, frozenset()), ({node.name: "too wide"}, ruled),
            ({}, ruled), ({}, frozenset({"tanh.default"})),
        )
    ]  # fmt: skip
    assert explain == [NOT_ASKED, "too wide", NO_REASON, NO_RULE]


TRACE = """  File "/home/me/net.py", line 7, in forward
    return self.inner(x)
  File "/usr/lib/torch/nn/linear.py", line 9, in forward
    return F.linear(x)
  File "/home/me/layer.py", line 12, in helper
      return x + 1  # done
  File "/usr/lib/torchao/ops.py", line 3, in add
    return ops.add(x)
"""


def test_a_line_is_the_innermost_of_the_model() -> None:
    node = node_of(ATEN.relu.default, torch.zeros(2))
    node.meta |= {
        "stack_trace": TRACE,
        "nn_module_stack": {"a": ("", "net.Net"), "b": ("inner.0", nn.Linear)},
    }
    origin = operators.find_origin(node)
    assert (origin.module_path, origin.module_type) == ("inner.0", "Linear")
    line = SourceLine(
        file="/home/me/layer.py", line=12, function="helper", code="return x + 1  # done"
    )
    assert origin.source == line
    named = operators.name_operator("relu", origin)
    assert named == "relu of module inner.0 (/home/me/layer.py:12: return x + 1  # done)"
    assert operators.name_operator("relu", Origin()) == "relu"
    node.meta["stack_trace"] = "\n".join(TRACE.splitlines()[2:4])
    inside = operators.find_origin(node).source
    assert inside is not None
    assert (inside.file, inside.line) == ("/usr/lib/torch/nn/linear.py", 9)


class Quantizing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(self.first(x).to(torch.float64).float())
        return y + 1


def test_a_scope_catches_the_operators_that_it_decides_on() -> None:
    program = torch.export.export(Quantizing(), (torch.zeros(2, 4),))
    scopes = parse_scopes(["first=fp32", "none=fp32", "first=fp32", "*=fp32"])
    caught = operators.count_covered([program, program], scopes)
    # The last decides on all; casts count nowhere, and a scope that is said twice is one.
    assert [(str(catch.scope), catch.operators) for catch in caught] == [
        ("first=fp32", 0), ("none=fp32", 0), ("*=fp32", 6),
    ]  # fmt: skip
    assert {catch.quantized for catch in caught} == {None}
    (first, _) = operators.count_covered([program], parse_scopes(["first=fp32", "x=fp32"]))
    assert (first.operators, first.quantized) == (1, None)
    assert operators.count_covered([program], ()) == ()


def test_of_integers_the_scope_says_how_many_it_caught() -> None:
    graph = torch.fx.Graph()
    source = graph.placeholder("x")
    whole = graph.call_function(quantize_per_tensor, (source,))
    floats = graph.call_function(dequantize_per_tensor, (whole,))
    graph.output((graph.call_function(ATEN.relu.default, (floats,)),
                  graph.call_function(ATEN.relu.default, (source,))))  # fmt: skip
    programs = cast("Any", [SimpleNamespace(graph=graph)])
    (caught,) = operators.count_covered(programs, parse_scopes(["*=int8"]))
    assert (caught.operators, caught.quantized) == (2, 1)


def quantize_per_tensor(value: torch.Tensor) -> torch.Tensor:
    return value


def dequantize_per_tensor(value: torch.Tensor) -> torch.Tensor:
    return value


def test_macs_are_counted_while_a_model_runs() -> None:
    layer, image = nn.Linear(5, 7), nn.Conv2d(3, 4, 2)
    with torch.no_grad(), operators.MacCounter() as counter:
        layer(torch.zeros(2, 5))
        image(torch.zeros(1, 3, 4, 4))
    # Products of 2x7 results, and of 4 channels of 3x3 with 3 channels of 2x2 each.
    assert counter.macs == 2 * 7 * 5 + 4 * 9 * 12


# ---- types and halves


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.b(self.a(x)), x.argmax(-1)


def test_a_part_in_another_precision_stands_between_two_casts() -> None:
    model = Pair()
    with torch.no_grad():
        model.a.weight.fill_(1 + 2**-20)
    method = lowering.cast_method(
        ExportMethod(model, (torch.ones(1, 2),)), torch.float16, parse_scopes(["a=fp32"])
    )
    assert method.inputs[0].dtype == torch.float16
    # Its weights are not those that were rounded on the way.
    assert model.a.weight.tolist() == [[1 + 2**-20] * 2] * 2
    types = {name: weight.dtype for name, weight in model.named_parameters()}
    assert types["a.weight"] == torch.float32
    assert types["b.0.weight"] == torch.float16
    program = torch.export.export(model, method.inputs)
    assert lowering.output_dtypes(program) == [torch.float16, torch.int64]


def test_an_export_in_float32_may_have_a_part_in_halves() -> None:
    model = Pair().eval()
    inputs = (torch.ones(1, 2),)
    method = lowering.cast_method(
        ExportMethod(model, inputs), torch.float32, parse_scopes(["b.*=fp16"])
    )
    assert model.b[0].weight.dtype == torch.float16
    assert method.module(*method.inputs)[0].dtype == torch.float32


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (65504.0, 65504.0), (-65504.0, -65504.0), (65505.0, 65504.0), (-1e9, -65504.0),
        (70000, 65504.0), (math.inf, math.inf), (-math.inf, -math.inf), (0.5, 0.5),
    ],
)  # fmt: skip
def test_a_number_is_the_nearest_that_halves_hold(value: float, written: float) -> None:
    target = ATEN.masked_fill.Scalar
    filled = half_constants._fit_numbers(target, ("x", "mask", value), torch.float16)
    assert filled == ["x", "mask", written]
    # The other half precision holds more, and a switch is no number.
    wide = half_constants._fit_numbers(target, ("x", "mask", -1e9), torch.bfloat16)
    assert wide == ["x", "mask", -1e9]
    switch = half_constants._fit_numbers(target, ("x", 1e9, True), torch.float16)
    assert switch == ["x", 1e9, True]


class Masked(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = x.masked_fill(x > 0, -1e9)
        return torch.where(x > 1, torch.tensor(1e9), low.masked_fill_(x > 2, 3.0)).to(x.dtype)


def test_constants_that_were_changed_are_counted_by_kind() -> None:
    inputs = (torch.ones(2, dtype=torch.float16),)
    program = torch.export.export(Masked(), inputs)
    counts = half_constants.clamp(program)
    assert counts["masked_fill"] == 1
    assert half_constants.clamp(torch.export.export(Masked(), (torch.ones(2),))) == {}


def test_a_norm_of_halves_gets_float32_and_gives_halves() -> None:
    program = torch.export.export(nn.LayerNorm(8).half(), (torch.ones(2, 8).half(),))
    with quiet_upstream():
        program = program.run_decompositions()
    counts, reasons = half_sums.widen(program)
    assert counts == {"layer norm": 1}
    # One cast for the input and one back for the only result that is read; weights are wide.
    assert len(reasons) == 2
    assert set(reasons.values()) == {half_sums.REASON}
    assert {weight.dtype for weight in program.state_dict.values()} == {torch.float32}
    (output,) = program.graph.output_node().all_input_nodes
    assert output.meta["val"].dtype == torch.float16
    assert half_sums.widen(program) == ({}, {})


# ---- convolutions


CONV3D = [
    ((1, 1, 1), (0, 0, 0), (1, 1, 1), 1), ((2, 1, 3), (1, 0, 2), (1, 2, 1), 1),
    ((1, 2, 1), (2, 1, 0), (2, 1, 1), 2), ((3, 1, 1), (1, 1, 1), (2, 1, 2), 1),
]  # fmt: skip


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), CONV3D)
def test_a_volume_is_a_sum_of_images(
    stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> None:
    torch.manual_seed(1)
    volume, bias = torch.randn(2, 4, 7, 6, 8), torch.randn(6)
    weight = torch.randn(6, 4 // groups, 3, 2, 3)
    settings: Any = (stride, padding, dilation, groups)
    expected = functional.conv3d(volume, weight, bias, *settings)
    assert torch.allclose(volumes._sum_slices(volume, weight, bias, *settings), expected, atol=1e-4)


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), CONV3D)
def test_a_transposed_volume_is_spread_by_planes(
    stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> None:
    torch.manual_seed(2)
    volume, bias = torch.randn(2, 4, 3, 4, 3), torch.randn(6)
    weight = torch.randn(4, 6 // groups, 3, 3, 2)
    extra = tuple(max(step, gap) - 1 for step, gap in zip(stride, dilation, strict=True))
    settings: Any = (stride, padding, extra, groups, dilation)
    expected = functional.conv_transpose3d(volume, weight, bias, *settings)
    actual = volumes._spread_slices(volume, weight, bias, *settings)
    assert actual.shape == expected.shape
    assert torch.allclose(actual, expected, atol=1e-4)


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line, self.image = nn.Conv1d(2, 2, 3), nn.Conv2d(2, 2, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        lines = self.line(x), self.line(x + 1), self.line(x * 2)
        return *lines, self.line.weight * 2, self.image(y), self.image(y + 1)


def test_the_first_convolution_keeps_the_kernel_and_others_get_copies() -> None:
    torch.manual_seed(4)
    inputs = (torch.randn(1, 2, 5), torch.randn(1, 2, 3, 3))
    program = torch.export.export(Towers(), inputs)
    before = program.module()(*inputs)
    copied = separate_kernels(program)
    assert copied is program
    names = [spec.target for spec in program.graph_signature.input_specs if spec.target]
    assert sorted(names) == [
        "image.bias", "image.weight", "line.bias", "line.weight", "line.weight_shared1",
        "line.weight_shared2",
    ]  # fmt: skip
    kernels = [n.args[1] for n in program.graph.nodes if "conv1d" in str(n.target)]
    assert len(set(kernels)) == 3
    images = [n.args[1] for n in program.graph.nodes if "conv2d" in str(n.target)]
    assert len(set(images)) == 1
    for value, expected in zip(program.module()(*inputs), before, strict=True):
        assert torch.equal(value, expected)


# ---- lowering


def raised_at(inner: torch.fx.Node) -> ValueError:
    """What a pass raises that was called for a graph's input and then for another node."""

    def visit(n: torch.fx.Node) -> None:
        raise KeyError(n.op)

    def call(node: object) -> None:
        try:
            visit(inner)
        except KeyError as error:
            raise ValueError(f"pass failed at {node}") from error

    with pytest.raises(ValueError, match="pass failed") as caught:
        call(inner.graph)
    return caught.value


def test_a_cause_is_told_with_the_operator_that_was_at_work() -> None:
    work = node_of(ATEN.relu.default, torch.zeros(2))
    error = raised_at(work)
    assert failing_node(error) is work
    assert root_cause(error) == "KeyError: 'call_function'"
    assert blame(error) == f"KeyError: 'call_function'; at relu.default ({work.name})"
    # An input of the graph is no operator.
    error = raised_at(work.all_input_nodes[0])
    assert failing_node(error) is None
    assert blame(error) == "KeyError: 'placeholder'"


def test_a_buffer_of_one_tensor_in_two_methods_is_shared() -> None:
    """One name of two tensors is none, and so is one method's alone."""
    first, second = nn.Module(), nn.Module()
    common = torch.zeros(3)
    for module in (first, second):
        module.register_buffer("common", common)
        module.register_buffer("apart", torch.zeros(3))
    first.register_buffer("lone", torch.zeros(3))
    methods = {str(n): ExportMethod(m, ()) for n, m in enumerate((first, second))}
    assert lowering.find_shared_buffers(methods) == {"common"}
