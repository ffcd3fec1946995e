"""Edges of models, their inputs, configs and imports; those of plain modules need torch."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from etprof import api, config, report_files
from etprof.base.errors import ExportError, InputFileError, UsageError
from etprof.etdump.reader import open_etdump
from etprof.importing.bare_etdump import (
    ClockOptions,
    _choose_method,
    _executed_calls,
    _find_mismatch,
)
from etprof.importing.clock import find_clock
from etprof.importing.import_run import ImportRequest, import_run
from etprof.importing.sources import (
    MINIBENCH,
    RUNNER_LOG,
    XCTEST,
    ImportedTiming,
    Source,
    _count,
    _plain,
    read_timing,
    recognise,
)
from etprof.model_registry import families, plain_model, registry, saved_program
from etprof.model_registry.expressions import NotAnExpressionError, check_expression
from etprof.model_registry.input_spec import InputSpec, make_inputs, parse_input
from etprof.run.delegation import Delegate, DelegationReport, GraphOperator, MethodReport
from etprof.run.load import Run
from tests.etdump_writer import etdump, event_block, write_etdump
from tests.known_etdumps import foreign_etdump, span
from tests.known_runs import on_off_run, write_run
from tests.upstream_files import minibench_json, runner_log, xctest_log

# What other programs leave.


def timing(kind: str, text: str) -> ImportedTiming:
    return read_timing(Source(Path("file"), kind, text.encode()))


def test_a_log_of_each_iteration_keeps_all_but_the_first() -> None:
    read = timing(RUNNER_LOG, runner_log([3.0, 1.0, 2.0], threads=4))
    assert (read.first_ns, read.latency_ns) == (3_000_000, (1_000_000, 2_000_000))
    assert (read.executed_ns, read.load_ns) == (6_000_000, 13_629_218)
    assert (read.threads, read.planned_bytes) == (4, (28_736,))
    assert (read.model, read.method, read.is_traced) == ("toy_cnn", "forward", True)
    assert read.notes == ("its inferences were timed with the event tracer on",)
    plain = timing(RUNNER_LOG, runner_log([3.0], threads=None, traced=False))
    assert (plain.threads, plain.is_traced, plain.latency_ns) == (None, False, ())
    assert plain.notes == (
        "it ran one inference, the first of its process: no steady latency is known",
    )
    unset = runner_log([3.0, 1.0], threads=7).replace("threads = 7", "threads = 0")
    assert timing(RUNNER_LOG, unset).threads is None


@pytest.mark.parametrize(
    ("iterations_ms", "latency_ns", "notes"),
    [
        ([3.0, 1.0], (2_000_000,), 1),
        ([3.0, 1.0, 1.0], (1_666_667,), 1),
        ([3.0], (), 2),
    ],
)
def test_a_log_of_the_sum_alone_has_a_mean(
    iterations_ms: list[float], latency_ns: tuple[int, ...], notes: int
) -> None:
    read = timing(RUNNER_LOG, runner_log(iterations_ms, traced=False, by_iteration=False))
    assert (read.latency_ns, read.first_ns) == (latency_ns, None)
    count = len(iterations_ms)
    assert read.notes[0] == f"its log has the sum of {count} inferences alone, the first one in it"
    assert len(read.notes) == notes
    assert read.executed_ns == sum(iterations_ms) * 1e6


def test_a_result_of_minibench_is_a_mean_of_a_phone() -> None:
    read = timing(MINIBENCH, minibench_json())
    assert (read.latency_ns, read.load_ns, read.first_ns) == ((4_250_000,), 31_500_000, None)
    assert (read.model, read.backend, read.precision) == ("mv2", "xnnpack", "q8")
    assert read.platform == "android"
    assert read.device == {"manufacturer": "samsung", "model": "SM-S921B", "system": "Android 14"}
    assert read.notes[1:] == (
        "not taken over from it: ram_pss_usage(mb), trimmean_inference_latency(ms)",
    )
    for mean in (0.0, -1.0):
        values = {"avg_inference_latency(ms)": mean}
        with pytest.raises(
            InputFileError, match=r"has no avg_inference_latency\(ms\), but avg_inf"
        ):
            timing(MINIBENCH, minibench_json(**values))
    least = timing(MINIBENCH, minibench_json(**{"avg_inference_latency(ms)": 0.5}))
    assert least.latency_ns == (500_000,)


def test_a_log_of_xctest_has_the_median_of_loads_and_the_largest_peak() -> None:
    read = timing(XCTEST, xctest_log([0.012, 0.0125]))
    assert (read.latency_ns, read.load_ns) == ((12_000_000, 12_500_000), 40_000_000)
    assert read.peak_bytes == 24_576 * 1024
    assert (read.model, read.backend, read.precision) == ("mv2", "xnnpack", "q8")
    assert read.device == {"model": "iPhone15,4", "system": "iOS 17.2.1"}
    plain = timing(XCTEST, xctest_log([0.012], model="mv2"))
    assert (plain.model, plain.backend, plain.precision) == ("mv2", None, None)
    with pytest.raises(InputFileError, match="Clock Monotonic Time"):
        timing(XCTEST, xctest_log([0.012, 0.0]))


def test_numbers_of_a_log_have_bounds() -> None:
    path = Path("log")
    assert _plain("0", path) == 0
    assert _plain(str(2**61), path) == 2**61
    for text in (str(2**62), "-0.5", "nan", "x"):
        with pytest.raises(InputFileError, match="cannot be a measured number"):
            _plain(text, path)
    assert _count(str(2**40), path) == 2**40
    assert _count("0" * 18 + "5", path) == 5
    for text in (str(2**40 + 1), "0" * 19 + "5"):
        with pytest.raises(InputFileError, match="is more than could have been"):
            _count(text, path)
    assert timing(RUNNER_LOG, runner_log([4e12, 1.0])).first_ns == 4 * 10**18
    assert timing(RUNNER_LOG, runner_log([0.0, 1.0])).first_ns == 0
    with pytest.raises(InputFileError, match="cannot be"):
        timing(RUNNER_LOG, runner_log([5e12, 1.0]))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"____ED00", "ETDump"),
        (b"________ED00", "ETDump"),
        (b"PK\3\4", "ETRecord"),
        (b"____ET12", "program"),
        (b"  \n[1]", MINIBENCH),
        (b"{}", MINIBENCH),
        (b"Iteration 1 of 1: 3 ms", RUNNER_LOG),
        (b"Model executed successfully 1 time(s) in 3 ms", RUNNER_LOG),
        (xctest_log([1.0]).encode(), XCTEST),
        (b"___ED00", None),
        (b"PK\3\5", None),
        (b"_ET", None),
    ],
)
def test_a_file_is_known_by_its_content(content: bytes, kind: str | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    if kind is not None:
        assert recognise(path).kind == kind
    else:
        with pytest.raises(InputFileError, match="is nothing that etprof can import"):
            recognise(path)


def test_a_mean_is_of_one_inference_unless_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(minibench_json())
    for inferences, count in ((None, 1), (50, 50)):
        folder = tmp_path / f"run{count}"
        done = import_run(
            ImportRequest(files=[tmp_path / "bench.json"], folder=folder, inferences=inferences)
        )
        (experiment,) = Run.load(folder, strict=False).timed.values()
        (block,) = experiment.blocks
        assert (block.block, block.inferences_per_sample) == (0, count)
        assert done.manifest.platform == "android"
        assert [launch.duration_s for launch in done.manifest.launches] == [None]
        assert "the platform is not known; --platform says it" not in done.manifest.notes


def clock_text(tmp_path: Path, executed_ns: int | None) -> str:
    """How the clock is known of two executions that take 510 000 ticks each."""
    path = tmp_path / "a.etdump"
    blocks = [event_block(b"Execute", [span(b"Method::execute", at, 510)]) for at in (0, 1000)]
    path.write_bytes(write_etdump(etdump(blocks)).data)
    return find_clock(open_etdump(path), None, None, executed_ns).text.partition(":")[0]


def test_a_log_says_the_clock_from_half_of_its_time_on(tmp_path: Path) -> None:
    """Its brackets are around the executions: they take a part of it, and hardly more than all."""
    for executed_ns, unit in (
        (1_000_000, "ns"), (2_040_000, "ns"), (1_000_000_000, "us"), (2 * 10**12, "ms"),
    ):  # fmt: skip
        assert clock_text(tmp_path, executed_ns) == unit
    for unlike_ns in (999_999, 2_040_001, 10_000_000, 0, None):
        with pytest.raises(UsageError, match="nothing says what clock"):
            clock_text(tmp_path, unlike_ns)


def test_flags_say_the_clock_first(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(write_etdump(etdump([])).data)
    dump = open_etdump(tmp_path / "a")
    assert find_clock(dump, None, 8e8, None).ns_per_tick == 1.25
    assert find_clock(dump, "cycles", 8e8, None).text.startswith("cycles of 800,000,000 a second")
    assert [find_clock(dump, unit, None, 7).ns_per_tick for unit in ("ns", "us", "ms")] == [
        1.0, 1e3, 1e6,
    ]  # fmt: skip
    with pytest.raises(UsageError, match="--clock-hz is of a clock in cycles"):
        find_clock(dump, "ns", 8e8, None)
    with pytest.raises(UsageError, match="give --clock-hz too"):
        find_clock(dump, "cycles", None, 1)


def method_of(*operators: str, delegates: tuple[int, ...] = ()) -> MethodReport:
    """A method that has these operators as its first instructions."""
    return MethodReport(
        operators=tuple(
            GraphOperator(name=f"n{number}", operator=operator, instruction=number)
            for number, operator in enumerate(operators)
        ),
        delegates=tuple(
            Delegate(name=f"d{number}", backend="x", instruction=number) for number in delegates
        ),
    )


def test_what_ran_is_known_by_its_instructions(tmp_path: Path) -> None:
    path = tmp_path / "a.etdump"
    path.write_bytes(foreign_etdump(2))
    assert _executed_calls(open_etdump(path)) == ({1: "addmm"}, {0: "XnnpackBackend"})
    events = [
        span(b"native_call_add.out", 0, 1, instruction_id=0),
        span(b"native_call_mul.out", 1000, 1),
        span(b"DELEGATE_CALL", 2000, 1),
        span(b"DELEGATE_CALL", 3000, 1, instruction_id=2),
        span(b"OPERATOR_CALL", 4000, 1, instruction_id=3),
    ]
    path.write_bytes(write_etdump(etdump([event_block(b"Execute", events)])).data)
    assert _executed_calls(open_etdump(path)) == ({0: "add"}, {2: "unknown"})


def test_an_etrecord_is_of_what_ran_where_half_of_its_kernels_are() -> None:
    ran, calls = {0: "add", 1: "mul"}, {5: "x"}
    fits = method_of("add.Tensor", "mul.Tensor", delegates=(5,))
    assert _find_mismatch(ran, calls, fits) is None
    half = method_of("add.Tensor", "sub.Tensor", "div.Tensor", delegates=(5,))
    assert _find_mismatch(ran, calls, half) is None
    none = method_of("div.Tensor", "sub.Tensor", delegates=(5,))
    assert _find_mismatch(ran, calls, none) == "0 of 2 kernels have the names that it says"
    third = {**ran, 2: "neg"}
    assert _find_mismatch(third, calls, half) == "1 of 3 kernels have the names that it says"
    assert _find_mismatch(ran, calls, method_of("add.Tensor", delegates=(5,))) == (
        "it has no operator at instruction 1, which ran mul"
    )
    assert _find_mismatch(ran, {}, fits) == "instruction 5 calls a delegate only there"
    assert _find_mismatch(ran, {4: "x", 5: "x"}, fits) == (
        "instruction 4 calls a delegate only in the ETDump"
    )
    assert _find_mismatch({}, {}, method_of()) is None


def test_the_only_method_that_fits_is_the_one_that_ran() -> None:
    fits, unlike = method_of("add.Tensor"), method_of("mul.Tensor")
    options = ClockOptions(etrecord=Path("a.etrecord"))
    path, ran = Path("a.etdump"), {0: "add"}

    def chosen(methods: dict[str, MethodReport], of: ClockOptions = options) -> str:
        return _choose_method(ran, {}, DelegationReport(model="m", methods=methods), path, of)[0]

    assert chosen({"one": unlike, "two": fits}) == "two"
    with pytest.raises(UsageError, match=r"several methods of a\.etrecord \(one, two\)"):
        chosen({"one": fits, "two": fits})
    assert chosen({"one": fits, "two": fits}, replace(options, method="two")) == "two"
    with pytest.raises(UsageError, match=r"--method three: a\.etrecord has one$"):
        chosen({"one": fits}, replace(options, method="three"))
    many = dict.fromkeys("abcde", unlike)
    with pytest.raises(InputFileError) as caught:
        chosen(many)
    assert re.findall(r"\b([a-e]): 0 of 1", str(caught.value)) == ["a", "b", "c", "d"]


# Expressions and inputs.

LARGE = f"{'9' * 156}**64"
"""Comes to 156 times 64 digits, which are 16 fewer than may be."""


@pytest.mark.parametrize(
    "text",
    [
        "9**64", "s0**64", "9**1.5", f"{'9' * 156}**64", "((" * 30 + "1" + "))" * 30, "s" * 10_000,
        "Max(1, 2, 3)", "s0**(-2)", "-+~s0",
        f"{LARGE}*{'9' * 16}", f"{LARGE}*{'9' * 15}+1", f"{LARGE}*{'9' * 16} < 1",
        f"Max({LARGE}, {'9' * 16})", f"{LARGE} + {LARGE}",
        "Max(" * 60 + "1" + ")" * 60, "Max(1, " * 60 + "1" + ")" * 60,
    ],
    ids=len,
)  # fmt: skip
def test_an_expression_may_be_as_long_and_deep_as_its_bounds(text: str) -> None:
    check_expression(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9**64.5", "the exponent 64.5 is above 64"),
        (f"{'9' * 157}**64", "more than 10000 digits"),
        (f"({'9' * 157})**s0", "more than 10000 digits"),
        (f"{LARGE}*{'9' * 17}", "more than 10000 digits"),
        (f"{LARGE}*{'9' * 16}-1", "more than 10000 digits"),
        (f"({LARGE})**0.5*{'9' * 17}", "more than 10000 digits"),
        (f"Max(1, {LARGE}, {'9' * 16})", "more than 10000 digits"),
        ("(" * 61 + "1" + ")" * 61, "nested more than 60 deep"),
        ("s" * 10_001, "10001 characters, more than 10000"),
        ("s0**2**2", "a power of a power"),
        ("Max(1, 2", "ends too early"),
        ("s0 s1", "'s1' stands where it cannot"),
        ("s0**(2", "ends too early"),
    ],
    ids=lambda text: text[:12],
)
def test_an_expression_beyond_its_bounds_is_refused(text: str, why: str) -> None:
    with pytest.raises(NotAnExpressionError, match=re.escape(why)):
        check_expression(text)


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("536870912", True), ("536870913", False), ("1x23170x23170", True),
        ("1x23171x23171", False), ("x".join("1" * 16), True), ("x".join("1" * 17), False),
        ("0x3", True),
    ],
)  # fmt: skip
def test_an_input_has_at_most_4_gib_of_the_widest_type(text: str, is_valid: bool) -> None:
    if is_valid:
        assert parse_input(text).shape == tuple(map(int, text.split("x")))
    else:
        with pytest.raises(UsageError, match="is larger than an input may be"):
            parse_input(text)


def test_inputs_are_drawn_below_their_limits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    ids = parse_input("int64:4000").draw(300)
    assert (int(ids.min()), int(ids.max())) == (0, 299)
    # A byte has all its values where nothing says less, any other integer is 0 or 1.
    specs = [parse_input("uint8:9000"), parse_input("m=int8:9000"), parse_input("int64:99")]
    positional, named = make_inputs(specs, 2)
    assert int(positional[0].max()) > 250
    assert [int(value.max()) for value in (positional[1], named["m"])] == [1, 1]
    (few,), _ = make_inputs([parse_input("uint8:9000")], 5)
    assert int(few.max()) == 4
    halves = parse_input("bool:4000").draw(2)
    assert halves.dtype == torch.bool
    assert 0.45 < halves.float().mean() < 0.55
    assert abs(float(parse_input("float64:9000").draw(2).mean())) < 0.05
    torch.save((torch.ones(2), torch.zeros(3)), tmp_path / "two.pt")
    positional, named = make_inputs([parse_input(str(tmp_path / "two.pt"))], 2)
    assert ([len(value) for value in positional], named) == ([2, 3], {})
    with pytest.raises(InputFileError, match="the file has 2 tensors without a name, not one"):
        make_inputs([parse_input(f"x={tmp_path / 'two.pt'}")], 2)
    torch.save({"a": torch.ones(2)}, tmp_path / "named.pt")
    with pytest.raises(InputFileError, match="the file has no tensors without a name, not one"):
        make_inputs([parse_input(f"x={tmp_path / 'named.pt'}")], 2)
    assert [parse_input(text).is_integer for text in ("1", "int8:1", "bool:1", "a.npy")] == [
        False, True, False, False,
    ]  # fmt: skip
    assert InputSpec("1x2", "a").document() == "a=1x2"


# Modules, by their first layer.


class Images(nn.Module):
    """Takes an image and optionally a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), nn.Conv1d(5, 2, 3), nn.Embedding(9, 2))
        self.table = nn.ModuleList([nn.EmbeddingBag(4, 2), nn.Embedding(9, 3)])

    def forward(self, image: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Returns what is left of the image."""
        return image if mask is None else image * mask


def test_a_first_layer_tells_shapes_by_likelihood() -> None:
    assert plain_model._guess(Images()) == (
        "body.1", ["1x5x16", "1x5x128", "1x5x1024", "1x5x16000"],
    )  # fmt: skip
    assert plain_model._guess(nn.Conv2d(3, 2, 1))[1][:3] == [
        "1x3x224x224", "1x3x32x32", "1x3x28x28",
    ]  # fmt: skip
    assert plain_model._guess(nn.Linear(6, 2)) == ("", ["1x6", "1x16x6"])
    assert plain_model._guess(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))) == ("", [])
    assert plain_model._table_sizes(Images()) == [9, 4]
    assert (plain_model._arguments(Images()), plain_model._most_inputs(Images())) == (["image"], 2)


@pytest.mark.parametrize(
    ("arguments", "guess", "shown"),
    [
        (["x", "y"], "1x5x16", ["1x5x16", "1x3x224x224"]),
        (["ids", "x"], "1x5x16", ["int64:1x17", "1x5x16"]),
        (["ids", "mask"], "1x5x16", ["1x5x16", "int64:1x17"]),
        (["x", "speaker"], "int64:1x16", ["1x3x224x224", "int64:1x16"]),
        (["x", "label", "y"], "int64:1x16", ["1x3x224x224", "int64:1x16", "1x3x224x224"]),
        (["input_ids", "grid"], "", ["int64:1x17", "1x3x224x224"]),
        (["idea", "Token_IDX"], "", ["1x3x224x224", "int64:1x17"]),
    ],
)
def test_the_first_layer_s_shape_is_for_the_argument_that_it_fits(
    arguments: list[str], guess: str, shown: list[str]
) -> None:
    assert plain_model._shapes_to_show(arguments, [guess] if guess else []) == shown


def test_inputs_have_another_kind_and_a_spelling() -> None:
    kinds = {
        "1x3": "int64:1x3",
        "a=int64:4": "a=4",
        "bool:2": "int64:2",
        "x.npy": "",
        "[]": "int64:[]",
    }
    assert {text: plain_model._of_other_kind(text) for text in kinds} == kinds
    assert list(plain_model._of_other_order("2x3")) == []
    assert list(plain_model._of_other_order("int8:1x2x3")) == ["int8:1x3x2"]
    assert list(plain_model._of_other_order("1x2x2")) == []
    values = (torch.zeros(1, 2), torch.zeros((), dtype=torch.int8), 3)
    assert [plain_model._spec_of(value) for value in values] == ["1x2", "int8:[]", "int"]


def test_a_class_that_needs_words_says_which() -> None:
    with pytest.raises(ExportError, match=r"Linear needs in_features, out_features: .*a\.py:make$"):
        plain_model.PlainSource(nn.Linear, "a.py:Linear").get_eager_model()
    with pytest.raises(ExportError, match=r"a\.py:f\(\) returns a int, not a torch\.nn\.Module"):
        plain_model.PlainSource(lambda: 3, "a.py:f").get_eager_model()
    layer = nn.Linear(2, 2)
    copied = plain_model.PlainSource(layer, "a.py:layer").get_eager_model()
    assert copied is not layer


def test_a_file_of_several_models_shows_three_of_them(tmp_path: Path) -> None:
    body = "(nn.Module):\n    pass\n"
    (tmp_path / "a.py").write_text(
        "from torch import nn\n" + "".join(f"class Net{letter}{body}" for letter in "ABCD")
    )
    with pytest.raises(UsageError) as caught:
        registry.find_model(f"{tmp_path / 'a.py'}").load_class()
    assert str(caught.value).startswith(f"{tmp_path / 'a.py'} has 4 models, not one; name a torch")
    assert re.findall(r":(Net.) --input 1x3x224x224", str(caught.value)) == ["NetA", "NetB", "NetC"]


# Saved programs, as data.


def member(name: str, size: int = 1) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.file_size = size
    return entry


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a/models/model.json"], None),
        (["a/models/model.json"] * 2, "it has 2 parts, or two of one name"),
        (["a/models/x/y.json"], "it holds no program of torch.export"),
        (["a/models/x.json", "a/models/y.json"], "it holds 2 programs, not one"),
        (["a/models/m.json", "a/data/aotinductor/x.so"], "it holds compiled code"),
        (["a/models/m.json", "a/data/constants/custom_obj_0"], "is a pickled object"),
        (["a/models/m.json", "a/data/constants/tensor_0"], None),
    ],
)
def test_an_archive_has_one_program_and_no_code(names: list[str], why: str | None) -> None:
    members = [member(name) for name in names]
    if why is None:
        saved_program._check_members(members)
    else:
        with pytest.raises(saved_program._RefusedError, match=why):
            saved_program._check_members(members)


def test_an_archive_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    model = member("a/models/m.json", 0)
    saved_program._check_members([model, member("a/w", 2**34)])
    with pytest.raises(saved_program._RefusedError, match="unpack to more than 17179869184 bytes"):
        saved_program._check_members([model, member("a/w", 2**34 + 1)])
    monkeypatch.setattr(saved_program, "MOST_PARTS", 3)
    saved_program._check_members([model, member("a/1"), member("a/2")])
    with pytest.raises(saved_program._RefusedError, match="it has 4 parts"):
        saved_program._check_members([model, member("a/1"), member("a/2"), member("a/3")])


# Names of other packages' models.


def test_names_of_families_are_taken_apart() -> None:
    assert families.find_family("timm") is None
    assert families.find_family("nobody:x") is None
    family, name = families.find_family("hf:a:b") or (None, "")
    assert (family and family.prefix, name) == ("hf", "a:b")
    assert families.short_name("hf:some/folder of mine") == "hf_folder_of_mine"
    with pytest.raises(UsageError, match=r"timm has no model 'resnet19'; did you mean 'resnet18'"):
        families._check_name("timm", "resnet19", ["resnet18"])
    with pytest.raises(UsageError, match=r"timm has no model '../x'; it has 1"):
        families._check_name("timm", "../x", ["../x"])
    families._check_name("timm", "a" * 200, ["a" * 200])
    with pytest.raises(UsageError, match=r"it has 1$"):
        families._check_name("timm", "a" * 201, ["a" * 201])
    nested = {"a": {"_attn_implementation": {"text": "x", "b": ["y"]}}, "c": [{"d": 1}, 2]}
    assert list(families._entries(nested)) == [
        ("_attn_implementation", "x"), ("_attn_implementation", "y"), ("d", 1), ("c", 2),
    ]  # fmt: skip


# Configs.


def problems(document: object) -> list[str]:
    with pytest.raises(UsageError) as caught:
        config.parse_config(json.dumps(document), "c.json")
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_launches_of_a_run_have_a_bound(tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(b"x")
    document: dict[str, Any] = {
        "model": str(tmp_path / "m.pte"),
        "experiments": [{"name": "a", "threads": [1, 2]}, {"name": "b", "threads": [1, 2, 4]}],
        "measurement": {"blocks": 20_000},
    }
    assert config.parse_config(json.dumps(document), "c").measurement.blocks == 20_000
    document["measurement"]["blocks"] = 20_001
    (line,) = problems(document)
    assert line.startswith("measurement.blocks: 20001 of every experiment and thread count are ")
    assert line.endswith(" 100005 launches; at most 100000 are measured in one run")
    document["measurement"]["blocks"] = 1
    document["experiments"][1]["name"] = "a"
    document["analysis"] = {"compare_pairs": [{"name": "p", "baseline": "a", "candidate": "ab"}]}
    assert "experiments: two are called 'a'" in problems(document)
    assert any(
        "compare_pairs.0.candidate: no experiment 'ab'" in line for line in problems(document)
    )


def test_a_value_that_is_long_is_cut_and_many_problems_are_counted() -> None:
    cut = f"'{'y' * 159}…"
    for length, shown in ((158, f"'{'y' * 158}'"), (159, cut), (300, cut)):
        lines = problems({"model": "m", "experiments": [{"name": "y" * length}]})
        assert any(line.endswith(f"(got {shown})") for line in lines), length
    lines = problems({"target": {"serial": "x"}, "model": "m", "experiments": [{"name": "a"}]})
    assert any("serial is for android, not for local; leave it out" in line for line in lines)
    listed = config.list_problems([f"problem {number}" for number in range(42)])
    assert listed.splitlines()[-2:] == ["  problem 39", "  and 2 more"]
    assert config.find_placeholders({"a": ["TODO", {"b": f"path/to/{'z' * 300}"}], "c": "x"}) == [
        "a.0: 'TODO' is a placeholder; fill it in",
        f"a.1.b: 'path/to/{'z' * 152}' is a placeholder; fill it in",
    ]


def test_a_field_is_left_out_of_a_copy() -> None:
    document = {"a": [{"b": 1, "c": 2}, 3], "d": 4}
    assert config._without(document, ("a", 0, "b")) == {"a": [{"c": 2}, 3], "d": 4}
    assert config._without(document, ("d",)) == {"a": [{"b": 1, "c": 2}, 3]}
    assert config._without(document, ("x", "y")) is document
    assert config._without(document, ()) is document
    assert document == {"a": [{"b": 1, "c": 2}, 3], "d": 4}
    kinds = [("a.py", True), ("a.pt2", True), ("a.py:Net", True), ("a.pyc", False), ("py", False)]
    assert [(name, config.names_a_source(name)) for name, _ in kinds] == kinds


# Reports.


def test_totals_are_in_the_unit_that_is_asked_for(tmp_path: Path) -> None:
    run = api.load_run(write_run(tmp_path / "r", on_off_run()))
    off = {"experiment": "android_off"}
    totals = [
        run.find_total_for_module("", unit=cast("Any", unit), **off)
        for unit in ("ns", "us", "ms", "s")
    ]
    assert all(totals)
    assert [round((totals[0] or 0) / (total or 1)) for total in totals] == [1, 1000, 10**6, 10**9]
    assert api._in_frame('<a b="c">').startswith('<iframe srcdoc="&lt;a b=&quot;c&quot;&gt;" sand')


def test_runs_are_named_by_model_precision_and_platform() -> None:
    def named(**fields: object) -> str:
        model = SimpleNamespace(name="net", precision=fields.pop("precision", "fp16"))
        manifest = SimpleNamespace(model=model, platform="linux") if not fields else None
        run = SimpleNamespace(manifest=manifest, source=Path("runs/a b.etdump"))
        return report_files.run_name(cast("Any", SimpleNamespace(run=run)))

    assert named() == "net_fp16_linux"
    assert named(precision=None) == "net_linux"
    assert named(bare=True) == "a_b"
