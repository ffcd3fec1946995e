"""Each rewrite on real graphs: it applies, leaves alone, and keeps what the program computes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

from etprof.backends.registry import BY_NAME, DEFAULT
from etprof.base.errors import ExportError, UsageError
from etprof.base.records import read_record
from etprof.base.upstream_noise import quiet_upstream
from etprof.export import delegation, lowering, upstream
from etprof.export.changes.rewriting import Rewriting, left_out_rewrites, sound_rewrites
from etprof.export.exporter import export_model
from etprof.export.request import ExportOptions, ExportRequest, parse_precision
from etprof.model_registry.eager_model import ExportMethod
from etprof.run.delegation import DelegationReport
from etprof.run.program import load_export_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from etprof.run.delegation import MethodReport

KNOWN = {each.name: each for each in BY_NAME[DEFAULT].exporter().rewrites()}


class Call(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


class First(nn.Module):
    """A recurrent layer that gives its outputs alone."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layer(x)[0]
        return outputs


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """ExecuTorch's warnings about itself are no failures of ours."""
    with quiet_upstream():
        yield


def rewriting_of(*names: str) -> Rewriting:
    return Rewriting([KNOWN[name] for name in names])


def halves(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).half()


def attention(*shape: int, **how: object) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    def attend(*qkv: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(*qkv, **how)  # type: ignore[arg-type]

    return Call(attend), tuple(halves(*shape) * (index + 1) for index in range(3))


def pointwise(**how: Any) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:  # noqa: ANN401
    torch.manual_seed(0)
    size = how.pop("kernel_size", 1)
    return nn.Conv2d(16, 32, size, **how).half().eval(), (halves(1, 16, 8, 8),)


# Rewrite, model and inputs, operators that it replaces, calls of portable kernels before and after;
# what is left are casts, of half-precision scalars too: those are for delegated_casts.
APPLIES = {
    "half_activations gelu": (Call(nn.GELU()), (halves(1, 4, 64),), 1, 1, 2),
    "half_activations silu": (Call(nn.SiLU()), (halves(1, 4, 64),), 1, 2, 0),
    "half_activations hardsigmoid": (Call(nn.Hardsigmoid()), (halves(1, 4, 64),), 1, 4, 2),
    "kept_dimensions image": (Call(lambda x: x.mean((2, 3))), (halves(1, 4, 6, 6),), 1, 1, 0),
    "kept_dimensions rows": (
        Call(lambda x: x.mean(-1, keepdim=True)), (halves(1, 4, 64).float(),), 1, 1, 0,
    ),
    "kept_dimensions halves": (
        Call(lambda x: x.mean(-1, keepdim=True)), (halves(1, 4, 64),), 1, 1, 2,
    ),
    "plain_views repeat": (
        Call(lambda x: x.repeat_interleave(2, dim=1) * 2.0), (halves(1, 2, 8),), 1, 3, 1,
    ),
    "spelled_norms layer": (nn.LayerNorm(64).half(), (halves(1, 4, 64),), 1, 3, 2),
    "spelled_norms rms": (nn.RMSNorm(64).half(), (halves(1, 4, 64),), 1, 5, 2),
    "spelled_norms two": (nn.LayerNorm((4, 16)).half(), (halves(1, 4, 16),), 1, 3, 2),
    "plain_attention": (*attention(1, 2, 8, 16), 1, 16, 1),
    "plain_attention causal": (*attention(2, 8, 16, is_causal=True), 1, 27, 1),
    "plain_products": (
        Call(torch.matmul), (halves(1, 2, 8, 16), halves(1, 2, 16, 8)), 1, 2, 0,
    ),
    "plain_views select": (Call(lambda x: x[:, 1] * 2.0), (halves(1, 3, 8),), 1, 2, 1),
    "plain_views unbind": (
        Call(lambda x: x.unbind(1)[0] * x.unbind(1)[1]), (halves(1, 2, 8),), 2, 2, 0,
    ),
    "plain_views split": (
        Call(lambda x: x.split([3, 5], -1)[0] * 2.0), (halves(1, 2, 8),), 1, 2, 1,
    ),
    "plain_views expand": (
        Call(lambda x: x.expand(-1, 4, 8) * 2.0), (halves(1, 1, 8),), 1, 2, 1,
    ),
    "plain_views empty": (
        Call(lambda x: torch.cat([torch.zeros(0, dtype=x.dtype), x], -1) * 2.0), (halves(1, 8),), 1, 2, 1,
    ),
    "whole_powers cube": (Call(lambda x: x.pow(3.0)), (halves(1, 4, 8),), 1, 1, 0),
    "whole_powers fourth": (Call(lambda x: x.pow(4)), (halves(1, 4, 8).float(),), 1, 1, 0),
    "whole_powers square": (Call(lambda x: x.pow(2.0)), (halves(1, 4, 8).float(),), 1, 1, 0),
    "kept_dimensions other": (Call(lambda x: x.mean(1)), (halves(1, 4, 64).float(),), 1, 1, 0),
    "plain_pools equal": (nn.AdaptiveAvgPool2d(3), (halves(1, 4, 6, 9),), 1, 1, 0),
    "plain_pools unequal": (nn.AdaptiveAvgPool2d(4), (halves(1, 4, 6, 9).float(),), 1, 1, 0),
    "plain_pools row": (nn.AdaptiveAvgPool1d(1), (halves(1, 4, 9).float(),), 1, 2, 0),
    "spelled_norms group": (nn.GroupNorm(2, 8), (halves(1, 8, 4, 4).float(),), 1, 1, 0),
    "spelled_norms instance": (
        nn.InstanceNorm2d(8, affine=True), (halves(1, 8, 4, 4).float(),), 1, 3, 0,
    ),
    "last_softmaxes": (Call(lambda x: x.softmax(1)), (halves(2, 3, 8),), 1, 1, 0),
    "plain_steps odd": (Call(lambda x: x[1::2] * 2.0), (halves(7, 3).float(),), 1, 1, 0),
    "plain_views roll": (
        Call(lambda x: x.roll((1, -2), (1, 2)) * 2.0), (halves(1, 4, 8).float(),), 1, 8, 0,
    ),
    "plain_views nearest": (
        Call(nn.UpsamplingNearest2d(scale_factor=2)), (halves(1, 4, 3, 5).float(),), 1, 1, 0,
    ),
    "plain_recurrences lstm": (
        Call(First(nn.LSTM(8, 6, 2, bidirectional=True))),
        (halves(3, 1, 8).float(),), 1, 44, 0,
    ),
    "plain_recurrences gru": (
        Call(First(nn.GRU(8, 6, batch_first=True))),
        (halves(1, 3, 8).float(),), 1, 12, 0,
    ),
    "plain_views squeeze": (
        Call(lambda x: x.squeeze(1).unsqueeze(0) * 2.0), (halves(1, 1, 8),), 2, 3, 1,
    ),
}  # fmt: skip
LEFT_ALONE = {
    "half_activations": (Call(nn.GELU()), (halves(1, 4, 64).float(),)),
    "kept_dimensions": (Call(lambda x: x.mean((2, 3), keepdim=True)), (halves(1, 4, 6, 6),)),
    "plain_steps": (Call(lambda x: x[..., ::2] * 2.0), (halves(3, 8).float(),)),
    "last_softmaxes": (Call(lambda x: x.softmax(-1)), (halves(2, 3, 8),)),
    "plain_pools": (nn.AdaptiveAvgPool2d(1), (halves(1, 4, 6, 6),)),
    "plain_recurrences": (nn.LSTMCell(8, 6), (halves(1, 8).float(),)),
    "plain_attention": attention(1, 2, 8, 16, dropout_p=0.5),
    "plain_products": (Call(torch.matmul), (halves(1, 2, 8, 16), halves(16, 8))),
    "plain_views": (
        Call(lambda x: torch.cat([x.slice_scatter(x, 0), x], -1) * 2.0),
        (halves(1, 3, 8),),
    ),
    "whole_powers": (
        Call(lambda x: x.pow(2) + x.pow(0.5) + x.pow(3.5)),
        (halves(1, 4, 8).float(),),
    ),
    "channel_weights": (nn.Linear(64, 8).half(), (halves(1, 64),)),
}


class Made(NamedTuple):
    """A program that ran."""

    report: MethodReport
    output: torch.Tensor
    rewriting: Rewriting
    outside: int
    """Calls of portable kernels in the program."""


def make(model: nn.Module, inputs: tuple[torch.Tensor, ...], *names: str) -> Made:
    """Lowers a model with the rewrites called `names` and runs the program."""
    from executorch.runtime import Runtime

    rewriting, options = rewriting_of(*names), ExportOptions(rewrites=names)
    # A quantised graph is as it is, and says so by an error.
    plain = model if isinstance(model, torch.fx.GraphModule) else model.eval().requires_grad_(False)
    traced = rewriting.before_lowering(lowering.trace("forward", ExportMethod(plain, inputs)))
    lowered = lowering.lower({"forward": traced}, DEFAULT, options)
    rewriting.operators += lowered.rewritten
    report = delegation.describe_method(lowered.methods["forward"], None)
    buffer = lowering.make_program(lowered.edge, options).buffer
    (plan,) = upstream.deserialize_pte_binary(buffer).program.execution_plan
    kinds = [type(each.instr_args).__name__ for each in plan.chains[0].instructions]
    output = Runtime.get().load_program(buffer).load_method("forward").execute(list(inputs))[0]
    return Made(report, output, rewriting, kinds.count("KernelCall"))


def snr_db(reference: torch.Tensor, found: torch.Tensor) -> float:
    error = (reference.double() - found.double()).square().sum()
    return float(10 * torch.log10(reference.double().square().sum() / error))


def eager(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = copy.deepcopy(model).float()(*(each.float() for each in inputs))
    return result


@pytest.mark.parametrize("case", APPLIES)
def test_a_rewrite_applies_and_keeps_what_is_computed(case: str) -> None:
    model, inputs, replaced, before, after = APPLIES[case]
    name = case.split(maxsplit=1)[0]
    made = make(model, inputs, name)
    assert made.rewriting.operators == {name: replaced}
    assert (make(model, inputs).outside, made.outside) == (before, after)
    assert made.output.shape == eager(model, inputs).shape
    assert snr_db(eager(model, inputs), made.output) > 55


def fail(*_: object, **__: object) -> Any:  # noqa: ANN401
    msg = "a shape that nobody thought of"
    raise ValueError(msg)


@pytest.mark.parametrize(
    ("name", "part", "planted"),
    [
        ("kept_dimensions", "_mean", staticmethod(fail)),
        ("kept_dimensions", "replacements", classmethod(fail)),
        ("half_pointwise_weights", "matches", classmethod(fail)),
    ],
)
def test_one_that_fails_and_that_nobody_asked_for_is_told_and_ends_no_export(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, part: str, planted: object
) -> None:
    """Every export looks for what it misses: one of these ended any, with a traceback."""
    monkeypatch.setattr(KNOWN[name], part, planted)
    made = export_model(ExportRequest("toy_cnn", "fp16", out=tmp_path / "made.pte"))
    manifest = load_export_manifest(made.pte)
    assert manifest is not None
    if part == "replacements":
        # It is asked for the operators that it needs before anything else.
        assert manifest.rewrites_left_out == {}
        return
    told = manifest.rewrites_left_out[name]
    assert "ValueError: a shape that nobody thought of" in told
    # The others are looked for as ever.
    report = read_record(DelegationReport, made.report, way_out="")
    found = {
        each for method in report.methods.values() for o in method.operators for each in o.rewrites
    }
    assert found == {"kept_dimensions", "half_pointwise_weights"} - {name}


@pytest.mark.parametrize(
    ("name", "part", "planted"),
    [
        ("kept_dimensions", "_mean", staticmethod(fail)),
        ("half_pointwise_weights", "matches", classmethod(fail)),
    ],
)
def test_one_that_fails_and_was_asked_for_is_an_error_with_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, part: str, planted: object
) -> None:
    """A search rejects it by that name; it was etprof's own fault, and said so."""
    monkeypatch.setattr(KNOWN[name], part, planted)
    options = ExportOptions(rewrites=("all",))
    with pytest.raises(ExportError, match=f"rewrite {name} fails: ValueError: .* --rewrite"):
        export_model(ExportRequest("toy_cnn", out=tmp_path / "made.pte", options=options))
    assert not list(tmp_path.iterdir())


def test_one_that_cannot_say_whether_it_holds_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KNOWN["delegated_casts"], "has_parts", classmethod(fail))
    everything = ExportRequest("toy_cnn", options=ExportOptions(rewrites=("all",)))
    assert "delegated_casts" not in {each.name for each in sound_rewrites(everything)}
    assert "nobody thought of" in left_out_rewrites(everything)["delegated_casts"]


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_near_miss_is_left_alone(name: str) -> None:
    model, inputs = LEFT_ALONE[name]
    traced = lowering.trace("forward", ExportMethod(model.eval(), inputs))
    rewriting = rewriting_of(name)
    assert rewriting.before_lowering(traced) is traced
    assert not rewriting.operators


@pytest.mark.parametrize("name", [name for name, each in KNOWN.items() if each.level == "graph"])
def test_dynamic_shapes_are_left_alone(name: str) -> None:
    """Their results would hold for the traced sizes only."""

    def compute(x: torch.Tensor) -> torch.Tensor:
        rows = functional.layer_norm(x, (8,)).mean(-1, keepdim=True).squeeze(-1)
        return functional.scaled_dot_product_attention(x, x, x).sum(-1) + rows

    size = torch.export.Dim("rows", min=2, max=9)
    method = ExportMethod(Call(compute), (halves(1, 4, 8).float(),), {}, {"inputs": ({1: size},)})
    traced = lowering.trace("forward", method)
    assert rewriting_of(name).before_lowering(traced) is traced


def weight_types(report: MethodReport) -> list[str]:
    return [node.types[1] for each in report.delegates for node in each.nodes if node.macs]


@pytest.mark.parametrize(
    ("how", "types"),
    [
        ({}, "fp16"),
        ({"stride": 2}, "fp32"),
        ({"padding": 1}, "fp32"),
        ({"groups": 2}, "fp32"),
        ({"kernel_size": 3}, "fp32"),
    ],
)
def test_pointwise_weights_stay_halves(how: dict[str, Any], types: str) -> None:
    model, inputs = pointwise(**how)
    assert weight_types(make(model, inputs).report) == ["fp32"]
    made = make(model, inputs, "half_pointwise_weights")
    assert weight_types(made.report) == [types]
    # It says itself that it found something to change, or nothing.
    assert made.rewriting.operators["half_pointwise_weights"] == (types == "fp16")
    assert snr_db(eager(model, inputs), made.output) > 55
    # Nothing of it is left in ExecuTorch afterwards.
    assert weight_types(make(model, inputs).report) == ["fp32"]


def test_casts_are_delegated_and_rounded_as_before() -> None:
    model, inputs = Call(lambda x: (x * 2.0).float().exp().half() + 1.0), (halves(1, 4, 64),)
    plain, made = make(model, inputs), make(model, inputs, "delegated_casts")
    assert (plain.outside, made.outside) == (4, 0)
    assert (len(plain.report.delegates), len(made.report.delegates)) == (3, 1)
    assert torch.equal(made.output, plain.output)
    assert made.rewriting.operators == {"delegated_casts": 4}
    assert make(model, inputs).outside == 4


class Image(nn.Module):
    """A convolution, whose result XNNPACK keeps channels last, and casts of it both ways."""

    def __init__(self, *, permutes: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 8, 3).half(), nn.Conv2d(8, 4, 1).half()
        self.order, self.back = (
            ((0, 2, 3, 1), (0, 3, 1, 2)) if permutes else ((0, 1, 2, 3), (0, 1, 2, 3))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = self.first(x).permute(self.order).float().exp().half()
        last: torch.Tensor = self.last(image.permute(self.back))
        return last


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Call(lambda x: (x * 2.0).float().exp().half() + 1.0), (1, 4, 8, 6)),
        (Image(permutes=False), (1, 3, 8, 10)),
        (Image(permutes=True), (1, 3, 8, 10)),
        # The delegate's input is transposed and cast, and so is its output.
        (Call(lambda x: functional.max_pool2d(x.float(), 3).half()), (1, 4, 9, 12)),
    ],
)
def test_an_image_s_casts_are_delegated_in_the_layout_that_it_has(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    inputs = (halves(*shape) / halves(*shape).abs().max(),)
    plain, made = make(model, inputs), make(model, inputs, "delegated_casts")
    assert plain.outside >= 2
    assert (made.outside, len(made.report.delegates)) == (0, 1)
    assert snr_db(plain.output, made.output) > 60


def test_norms_of_images_with_the_channels_last_are_not_transposed() -> None:
    """Each of their products was, in and out: 47 transposes in ConvNeXt where 5 are needed."""
    model = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16)).half()
    made = make(model, (halves(1, 6, 5, 16),), "spelled_norms", "delegated_casts")
    nodes = [node for each in made.report.delegates for node in each.nodes]
    assert [node.permutation for node in nodes if node.permutation is not None] == []
    assert (made.outside, len(made.report.delegates)) == (0, 1)
    assert snr_db(eager(model, (halves(1, 6, 5, 16),)), made.output) > 50


def quantized(
    precision: str, model: nn.Module, inputs: tuple[torch.Tensor, ...], *names: str
) -> nn.Module:
    method, _ = lowering.quantize_method(
        "forward",
        ExportMethod(model.eval(), inputs),
        parse_precision(precision),
        BY_NAME[DEFAULT],
        rewriting_of(*names),
    )
    return method.module


def test_a_precision_that_its_rewrite_does_not_make_is_refused() -> None:
    """Else a program would be called `8da4w_channel` and have blocks."""
    rewriting = Rewriting([KNOWN["channel_weights"]], of_precision=("channel_weights",))
    with pytest.raises(ExportError, match="finds no weights to change"):
        rewriting.check_precision()
    rewriting.operators["channel_weights"] += 1
    rewriting.check_precision()
    assert rewriting.applied == ()


def test_a_precision_whose_rewrite_is_not_sound_here_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = ExportRequest("m", "8da4w_channel")
    assert [each.name for each in sound_rewrites(request)] == ["channel_weights"]
    gone = classmethod(lambda _: "PyTorch has no operator 'x'")
    monkeypatch.setattr(KNOWN["channel_weights"], "find_objection", gone)
    with pytest.raises(UsageError) as refused:
        sound_rewrites(request)
    assert str(refused.value) == (
        "--dtype 8da4w_channel: PyTorch has no operator 'x'; choose another precision"
    )


def test_rows_of_four_bits_take_a_scale_a_channel() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).eval()
    inputs = (torch.randn(3, 64),)
    module = quantized("8da4w", model, inputs)
    with torch.no_grad():
        expected = module(*inputs)
    assert weight_types(make(module, inputs).report) == ["qbint4"] * 2
    made = make(module, inputs, "channel_weights")
    assert weight_types(made.report) == ["qcint4"] * 2
    assert made.report.summary is not None
    assert made.report.summary.predicted_sme2_macs_share == 1
    assert snr_db(expected, made.output) > 100


@pytest.mark.parametrize(
    ("layer", "types"),
    [
        (nn.Conv2d(16, 32, 1), ("qint8", "qcint8")),
        (nn.Linear(8, 32), ("qint8", "qcint8")),
        (nn.Conv2d(16, 32, 3, padding=1), ("qint8", "qint8")),
        (nn.ConvTranspose2d(16, 32, 3), ("qint8", "qint8")),
    ],
)
def test_weights_of_products_take_their_scale_for_each_channel(
    layer: nn.Module, types: tuple[str, str]
) -> None:
    """Of one scale for all, XNNPACK's 8-bit products have no SME2 microkernel."""
    torch.manual_seed(0)
    inputs = (torch.randn(1, 16, 8, 8),)
    model = quantized("int8_per_tensor", nn.Sequential(layer, nn.ReLU()), inputs)
    with torch.no_grad():
        expected = model(*inputs)
    plain, made = make(model, inputs), make(model, inputs, "channel_scales")
    assert (weight_types(plain.report), weight_types(made.report)) == ([types[0]], [types[1]])
    assert made.rewriting.operators["channel_scales"] == (types[0] != types[1])
    # One unit of the last place of 8 bits, where a kernel rounds otherwise.
    assert snr_db(expected, made.output) > 40


def test_each_product_of_attention_does_its_own_work() -> None:
    """Both have the handle of what they come from: the first had the work of two, and counted
    work of attention was nobody's (a decoder of 4 bits stood at 85 % on SME2 instead of 100)."""
    # softmax(q k) v with heads of 16 and values of 4: the products differ.
    inputs = (halves(1, 8, 16).float(), halves(1, 8, 16).float(), halves(1, 8, 4).float())
    model = Call(functional.scaled_dot_product_attention)
    report = make(model, inputs, "plain_attention").report
    nodes = [each for one in report.delegates for each in one.nodes if each.macs]
    assert [(each.kind, each.macs) for each in nodes] == [
        ("BatchMatrixMultiply", 8 * 8 * 16), ("BatchMatrixMultiply", 8 * 8 * 4),
    ]  # fmt: skip
    working = {each.name for each in report.operators if each.macs}
    assert [len(working & set(each.operators)) for each in nodes] == [1, 1]


def test_a_block_of_a_transformer_is_one_delegate_call() -> None:
    """Together: no step of them is monotone, so each alone may leave more calls than none."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 2, 128, activation="gelu", batch_first=True, dropout=0.0)
    model, inputs = Call(layer.eval().half()), (halves(1, 8, 64),)
    made = make(model, inputs, *KNOWN)
    assert (len(made.report.delegates), made.outside) == (1, 0)
    assert snr_db(eager(layer, inputs), made.output) > 55


def test_an_unknown_rewrite_is_refused_with_the_known_ones() -> None:
    request = ExportRequest("toy_cnn", options=ExportOptions(rewrites=("fast_please",)))
    with pytest.raises(UsageError, match=r"--rewrite 'fast_please' is unknown; .*plain_views"):
        sound_rewrites(request)
    everything = ExportRequest("toy_cnn", options=ExportOptions(rewrites=("all",)))
    assert [each.name for each in sound_rewrites(everything)] == list(KNOWN)


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ("feature", "lacks what it rests on: ToDimOrderCopyConfig"),
        ("version", "known to hold for ExecuTorch 1.5, not for 2.0.0"),
    ],
)
def test_what_this_executorch_cannot_vouch_for_is_disabled_and_told(
    monkeypatch: pytest.MonkeyPatch, planted: str, told: str
) -> None:
    """Without a feature, or in a version nobody has looked at: refused by name, left out of `all`."""
    casts = KNOWN["delegated_casts"]
    if planted == "feature":
        monkeypatch.setattr(casts, "has_parts", classmethod(lambda _: False))
    else:
        monkeypatch.setattr("etprof.backends.xnnpack.lowering_rewrites.version", lambda _: "2.0.0")
    request = ExportRequest("toy_cnn", options=ExportOptions(rewrites=("delegated_casts",)))
    with pytest.raises(UsageError, match=told):
        sound_rewrites(request)
    everything = ExportRequest("toy_cnn", options=ExportOptions(rewrites=("all",)))
    of_lowering = {each.name for each in KNOWN.values() if each.level == "lowering"}
    disabled = {casts.name} if planted == "feature" else of_lowering
    assert {each.name for each in sound_rewrites(everything)} == KNOWN.keys() - disabled
    left_out = left_out_rewrites(everything)
    assert left_out.keys() == disabled
    assert told in left_out[casts.name]


class Masked(nn.Module):
    """Adds a mask that is made of positions, with copies on the way, as window attention makes its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps to windows of four."""
        window = (torch.arange(16) >= 6).to(torch.int64)
        rows = window.reshape(4, 4).transpose(0, 1).contiguous()
        mask = rows.unsqueeze(1) - rows.unsqueeze(2)
        return x + mask.masked_fill(mask != 0, -100.0).to(x.dtype)


def test_copies_of_constants_are_folded_too() -> None:
    """ExecuTorch's pass knows no memory format: one copy kept all after it outside the delegate."""
    inputs = (halves(4, 4, 4).float(),)
    assert make(Masked(), inputs).outside > 4
    made = make(Masked(), inputs, "folded_constants")
    assert made.outside == 0
    assert torch.allclose(eager(Masked(), inputs), made.output)


class Transposed(nn.Module):
    """Weights and tables that are stored in another order than their shape says."""

    def __init__(self, use: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layer = nn.Linear(8, 4, bias=False)
        self.layer.weight = nn.Parameter(torch.randn(8, 4).t())
        self.register_buffer("table", torch.randn(4, 3, 2).permute(2, 1, 0))
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds what `use` makes of the table."""
        result: torch.Tensor = self.layer(x) + self.use(self.get_buffer("table"))
        return result


@pytest.mark.parametrize("names", [(), ("folded_constants",)])
@pytest.mark.parametrize(
    "use", [lambda t: t, lambda t: t.cumsum(0), lambda t: (t * 2).permute(0, 1, 2).transpose(0, 1).transpose(0, 1)]
)  # fmt: skip
def test_what_is_stored_transposed_is_read_as_it_is(
    names: tuple[str, ...], use: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """A folded table kept its permuted strides, and the runtime read it with the wrong shape."""
    model, inputs = Transposed(use), (halves(2, 3, 8).float(),)
    expected = eager(model, inputs)
    assert torch.allclose(expected, make(model, inputs, *names).output, atol=1e-5)
