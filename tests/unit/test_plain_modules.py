"""A stranger's module: a class, an instance, a function or a `.pt2`, with inputs from the command line."""

from __future__ import annotations

import json
import re
import textwrap
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from etprof.base.errors import EtprofError, ExportError, InputFileError, UsageError
from etprof.bench.matrix import ModelEntry
from etprof.config import names_a_source
from etprof.export.model_loading import load_methods
from etprof.export.quality.reference import run_reference
from etprof.export.request import ExportOptions, ExportRequest
from etprof.model_registry import registry
from etprof.model_registry.eager_model import ExportMethod
from etprof.model_registry.input_spec import describe_inputs, parse_input
from etprof.model_registry.plain_model import describe_fitting
from etprof.run.program import ExportManifest

NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.words = nn.Conv2d(3, 8, 3), nn.Embedding(50, 8)
            self.kinds = nn.Embedding(2, 8)

        def forward(self, image, ids):
            return self.conv(image).mean((2, 3)) + self.words(ids).mean(1)

    class Digits(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, width, 3), nn.Linear(width * 26 * 26, 10)

        def forward(self, x):
            return self.head(self.conv(x).flatten(1))

    class Kinds(Net):
        def forward(self, ids, kinds):
            return self.words(ids) + self.kinds(kinds)

    class Video(nn.Module):
        def __init__(self):
            super().__init__()
            self.voices, self.conv = nn.Embedding(50, 8), nn.Conv2d(3, 8, 3)

        def forward(self, video, speaker):
            return self.conv(video).mean((2, 3)) + self.voices(speaker).mean(1)

    class Nothing:
        pass

    class Half:
        def get_eager_model(self):
            return Digits(2)

    def make():
        return Digits(4)

    def number():
        return 3

    digits = Digits(2)
    words = nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 2))
    vector = nn.Linear(6, 2)
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file's name, in the working folder."""
    (tmp_path / "net.py").write_text(textwrap.dedent(NET), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return "net.py"


def shapes(name: str, *inputs: str) -> list[str]:
    """The inputs that a model is exported with."""
    methods = load_methods(name, None, inputs)
    forward = methods["forward"]
    with torch.no_grad():
        forward.module.eval()(*forward.inputs, **forward.kwarg_inputs)
    values = [*forward.inputs, *forward.kwarg_inputs.values()]
    return [f"{value.dtype}{list(value.shape)}".removeprefix("torch.") for value in values]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("1x3x224x224", "float32[1, 3, 224, 224]"),
        ("int64:1x17", "int64[1, 17]"),
        ("torch.int64:1x17", "int64[1, 17]"),
        ("long:4", "int64[4]"),
        ("int64[1, 17]", "int64[1, 17]"),
        ("[2, 3]", "float32[2, 3]"),
        ("float32[]", "float32[]"),
        ("half:2x2", "float16[2, 2]"),
        ("bfloat16:2", "bfloat16[2]"),
        ("bool:1x4", "bool[1, 4]"),
        ("uint8:1x4", "uint8[1, 4]"),
    ],
)
def test_shapes_and_types_are_written_as_torch_does(text: str, shape: str) -> None:
    """U3-3: no flag for inputs."""
    value = parse_input(text).draw(2)
    assert f"{value.dtype}{list(value.shape)}" == f"torch.{shape}"


@pytest.mark.parametrize(
    "text", ["", "3x", "x3", "int64", "complex64:3", "99999999999x9", "1;2", "a=", "int64:"]
)
def test_what_is_no_input_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match="--input"):
        parse_input(text)
    with pytest.raises(UsageError, match="--input"):
        ExportRequest("toy_cnn", options=ExportOptions(example_inputs=(text,))).files()


@pytest.mark.parametrize(
    ("name", "inputs", "taken"),
    [
        ("net.py:Net", ("1x3x8x8", "int64:1x17"), ["float32[1, 3, 8, 8]", "int64[1, 17]"]),
        ("net.py:Net", ("ids=int64:1x5", "1x3x8x8"), ["float32[1, 3, 8, 8]", "int64[1, 5]"]),
        ("net.py:make", ("4x1x28x28",), ["float32[4, 1, 28, 28]"]),
        ("net.py:make", (), ["float32[1, 1, 28, 28]"]),
        ("net.py:digits", (), ["float32[1, 1, 28, 28]"]),
        ("net.py:words", (), ["int64[1, 16]"]),
        ("net.py:vector", (), ["float32[1, 6]"]),
        ("toy_cnn", ("2x3x32x32",), ["float32[2, 3, 32, 32]"]),
    ],
)  # fmt: skip
def test_a_plain_module_is_a_model(
    net: str, name: str, inputs: tuple[str, ...], taken: list[str]
) -> None:
    """U3-3: `profile net.py:Net`, a plain `nn.Module`, was refused with exit code 6."""
    assert net == "net.py"
    assert shapes(name, *inputs) == taken


def test_integers_are_within_the_smallest_table_that_they_reach(net: str) -> None:
    """The type table has two rows; ids of the word table would be an error in it."""
    assert shapes(f"{net}:Kinds", "int64:1x4", "int64:1x4") == ["int64[1, 4]"] * 2
    method = load_methods(f"{net}:Net", None, ("1x3x8x8", "int64:1x200"))["forward"]
    assert method.inputs[1].max() > 2
    assert method.assumption == "integers of the inputs were drawn from 0 to 49"


def test_what_was_tried_is_said(net: str) -> None:
    method = load_methods(f"{net}:make")["forward"]
    assert method.assumption == (
        "no input was given: 1x1x28x28 fits its first layer (Conv2d conv); --input sets another"
    )
    assert not load_methods("toy_cnn")["forward"].assumption


def test_an_instance_is_the_same_in_every_export(net: str) -> None:
    """An export casts and rewrites a module in place."""
    first = load_methods(f"{net}:digits")["forward"].module
    before = first.conv.weight.clone()  # type: ignore[operator, union-attr]
    first.half()
    again = load_methods(f"{net}:digits")["forward"].module
    assert again is not first
    assert torch.equal(again.conv.weight, before)  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("net.py:Net", "etprof profile net.py:Net --input 1x3x224x224 --input int64:1x17"),
        ("net.py:Kinds", "etprof profile net.py:Kinds --input int64:1x17 --input 1x3x224x224"),
        ("net.py:Video", "etprof profile net.py:Video --input 1x3x224x224 --input int64:1x16"),
        ("net.py:Nothing", "etprof profile net.py:Net --input 1x3x224x224"),
        ("net.py:Half", "`etprof docs own_model`"),
        ("net.py:Missing", "etprof profile net.py:Net --input 1x3x224x224"),
        ("net.py:Digits", "def make(): return Digits(width=…)`, and name it: net.py:make"),
        ("net.py:number", "net.py:number() returns a int, not a torch.nn.Module"),
    ],
)
def test_a_refusal_shows_the_command_filled_in(net: str, name: str, command: str) -> None:
    """U3-3: the message named `docs/own_model.md`, which an installed user does not have."""
    assert net == "net.py"
    with pytest.raises(EtprofError) as caught:
        load_methods(name)
    assert command in str(caught.value)
    assert ".md" not in str(caught.value)


def test_a_file_of_one_plain_module_needs_no_class_name(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(
        "from torch import nn\nclass One(nn.Linear):\n    def __init__(self): super().__init__(3, 2)\n"
    )
    assert shapes(str(file)) == ["float32[1, 3]"]


def test_inputs_of_files(net: str, tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", np.zeros((1, 3, 8, 8), np.float32))
    torch.save(torch.tensor([[1, 2]]), tmp_path / "ids.pt")
    torch.save(
        {"ids": torch.tensor([[1, 2]]), "image": torch.zeros(1, 3, 8, 8)}, tmp_path / "all.pt"
    )
    taken = ["float32[1, 3, 8, 8]", "int64[1, 2]"]
    assert shapes(f"{net}:Net", "image.npy", "ids.pt") == taken
    assert sorted(shapes(f"{net}:Net", "all.pt")) == taken
    described = describe_inputs(["ids=ids.pt", "1x3"])
    manifest = ExportManifest(
        model="m", backend="xnnpack", precision="fp16", options={"example_inputs": described}
    )
    assert manifest.example_inputs == ("ids=ids.pt", "1x3")
    torch.save(torch.tensor([[1, 3]]), tmp_path / "ids.pt")
    assert describe_inputs(["ids=ids.pt", "1x3"]) != described, "a file is known by its content"


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, ("touch ran",)


def test_a_file_of_inputs_is_data(net: str, tmp_path: Path) -> None:
    """A pickle in `.pt` or `.npy` runs what it names."""
    torch.save({"image": Evil()}, tmp_path / "evil.pt")
    np.save(tmp_path / "evil.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    torch.save({"image": 3}, tmp_path / "number.pt")
    for name in ("evil.pt", "evil.npy", "broken.npy", "number.pt", "missing.npy"):
        with pytest.raises(InputFileError, match=name):
            load_methods(f"{net}:Net", None, (name,))
    assert not (tmp_path / "ran").exists()


class Saved(nn.Module):
    """A module with a dynamic batch, an embedding and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.words(ids))
        return scores.reshape(ids.shape[0], -1)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    batch = torch.export.Dim("batch", min=2, max=8)
    program = torch.export.export(
        Saved().eval(), (torch.zeros(3, 5, dtype=torch.long),), dynamic_shapes=({0: batch},)
    )
    path = tmp_path / "net.pt2"
    torch.export.save(program, path)
    return path


def test_a_saved_program_is_a_model_with_its_inputs_and_dynamic_dimensions(saved: Path) -> None:
    assert shapes(str(saved)) == ["int64[3, 5]"]
    method = load_methods(str(saved))["forward"]
    (dimension,) = method.dynamic_shapes[0].values()
    assert (dimension.min, dimension.max) == (2, 8)
    assert shapes(str(saved), "int64:4x5") == ["int64[4, 5]"]
    assert ExportRequest(str(saved)).files().pte.name == "net_xnnpack_fp16.pte"
    assert registry.find_model(str(saved)).hash_files()


def rewritten(path: Path, change: object) -> Path:
    """A copy of the archive whose parts are what `change` makes of them."""
    copy = path.with_name("other.pt2")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as written:
        for name in archive.namelist():
            written.writestr(name, change(name, archive.read(name)))  # type: ignore[operator]
    return copy


def _replace(before: str, after: str) -> object:
    def change(name: str, part: bytes) -> bytes:
        return part.replace(before.encode(), after.encode()) if name.endswith(".json") else part

    return change


def _pickled_weight(name: str, part: bytes) -> bytes:
    if name.endswith("weights_config.json"):
        document = json.loads(part)
        document["config"]["head.bias"] |= {"use_pickle": True}
        return json.dumps(document).encode()
    if name.endswith("weights/weight_1"):
        import io

        stream = io.BytesIO()
        torch.save(Evil(), stream)
        return stream.getvalue()
    return part


def _damage(name: str, part: bytes) -> bytes:
    return part[:9] if name.endswith(".json") else part


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_replace("torch.ops.aten.linear.default", "torch.hub.load"), "no operator of an export"),
        (_replace("torch.ops.aten.linear.default", "torch.ops.aten.__class__"), "no operator"),
        (_replace('"linear"', '"linear=__import__(1)"'), "is not a name"),
        (_replace("\"expr_str\": \"Sym", "\"expr_str\": \"__import__(1)+Sym"), "the expression"),
        (_replace('"path_name": "weight_0"', '"path_name": "custom_obj_0"'), "pickled object"),
        (_pickled_weight, "other.pt2"),
        (_damage, "other.pt2"),
    ],
    ids=["function", "attribute", "name", "expression", "object", "pickle", "damaged"],
)  # fmt: skip
def test_a_saved_program_is_read_as_data(
    saved: Path, change: object, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's own reader runs what stands in pickles, expressions and nodes."""
    monkeypatch.chdir(saved.parent)
    with pytest.raises(InputFileError, match=reason):
        load_methods(str(rewritten(saved, change)))
    assert not (saved.parent / "ran").exists()


def test_a_pickled_module_is_told_what_to_do(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "net.pt")
    with pytest.raises(UsageError, match=r"\.pt2 \(torch\.export\.save\)"):
        registry.find_model(str(tmp_path / "net.pt"))


def test_inputs_are_for_models_of_one_method() -> None:
    with pytest.raises(UsageError, match="leave out --input"):
        load_methods("decoder", None, ("1x3",))
    assert ExportError.exit_code == 6


def test_a_matrix_has_a_saved_program_by_its_name(saved: Path) -> None:
    """Its rows and files are named as those of every model are."""
    entry = ModelEntry(model=str(saved))
    assert (entry.name, entry.program) == ("net", None)
    assert names_a_source(str(saved))


def test_a_module_beside_others_has_the_same_weights_each_time(tmp_path: Path) -> None:
    """The file's own modules draw weights when it is imported: the second export had others."""
    file = tmp_path / "drawn.py"
    file.write_text(
        "from torch import nn\nbeside = nn.Linear(9, 9)\ndef make(): return nn.Linear(4, 2)\n"
    )
    weights = []
    for _ in range(2):
        torch.manual_seed(0)
        weights.append(load_methods(f"{file}:make")["forward"].module.weight)
    assert torch.equal(weights[0], weights[1])  # type: ignore[arg-type]


def test_inputs_that_the_model_cannot_take_are_those_of_the_command_line() -> None:
    """A newcomer's own `--input 1x9x200` was called the model's example inputs."""
    method = ExportMethod(nn.Linear(3, 2), (torch.zeros(1, 4),))
    with pytest.raises(UsageError, match=r"^the model fails on the inputs of --input: Runtime"):
        run_reference(method, torch.float32, ["1x4"])
    with pytest.raises(ExportError, match=r"^the model fails on its own example inputs: Runtime"):
        run_reference(method, torch.float32)


def test_a_package_that_is_here_and_fails_is_not_told_to_be_missing(tmp_path: Path) -> None:
    """transformers says ModuleNotFoundError for a torchvision that does not load."""
    (tmp_path / "lazy.py").write_text(
        "from torch import nn\n"
        "def make() -> nn.Module:\n"
        "    try:\n"
        "        raise RuntimeError('operator nms does not exist')\n"
        "    except RuntimeError as error:\n"
        "        raise ModuleNotFoundError('Could not import module BertModel') from error\n"
    )
    with pytest.raises(ExportError) as caught:
        load_methods(f"{tmp_path / 'lazy.py'}:make", None, ("1x3",))
    assert "pip install" not in str(caught.value)
    assert str(caught.value).endswith(
        "Could not import module BertModel; it began with RuntimeError: operator nms does not exist"
    )


@pytest.mark.parametrize(
    ("module", "given", "fitting"),
    [
        (nn.Embedding(9, 4), ["1x17"], "--input int64:1x17"),
        (nn.Linear(3, 2), ["int64:1x3"], "--input 1x3"),
        (nn.Conv2d(3, 2, 3), ["1x1x28x28"], "--input 1x3x224x224"),
        (nn.Linear(3, 2), ["input=int64:4x3"], "--input input=4x3"),
    ],
)
def test_inputs_of_another_kind_or_shape_are_answered_with_those_that_fit(
    module: nn.Module, given: list[str], fitting: str
) -> None:
    """Only PyTorch's message was printed, about scalar types and indices."""
    assert describe_fitting("net.py:Net", module, given) == f"; it takes, for example, {fitting}"
    with pytest.raises(UsageError, match=f"; it takes, for example, {fitting}$"):
        run_reference(ExportMethod(module, (torch.zeros(2, 2, 2),)), torch.float32, given, "m")


def test_a_model_of_a_name_names_its_own_inputs() -> None:
    """toy_cnn, of 32 rows, was said to take 1x3x224x224."""
    method = replace(load_methods("toy_cnn")["forward"], inputs=(torch.zeros(1, 5, 32, 32),))
    with pytest.raises(UsageError, match=r"; it takes --input 1x3x32x32$"):
        run_reference(method, torch.float32, ["1x5x32x32"], "toy_cnn")


def test_a_saved_program_names_what_it_was_saved_with(saved: Path) -> None:
    (shape,) = (tuple(value.shape) for value in load_methods(str(saved))["forward"].inputs)
    text = "x".join(map(str, shape))
    said = describe_fitting(str(saved), nn.Linear(1, 1), ["1x1"])
    assert said == f"; {saved} was saved with --input int64:{text}"


def test_inputs_that_nothing_is_known_of_have_no_advice() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            raise ValueError(x.shape, y.shape)

    told = "; forward takes (x, y), in this order"
    assert describe_fitting("net.py:Odd", Odd(), ["1x3", "int64:1x3"]) == told


def test_inputs_in_another_order_are_put_in_order() -> None:
    """A label before its features was answered with PyTorch's message about indices."""

    class Ranker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.line = nn.Embedding(50, 8), nn.Linear(13, 8)

        def forward(self, features: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            score: torch.Tensor = self.line(features) + self.table(ids).sum(1)
            return score

    said = describe_fitting("net.py:Ranker", Ranker(), ["int64:1x20", "1x13"])
    assert said == "; it takes, for example, --input 1x13 --input int64:1x20"


def test_inputs_that_are_missing_are_named() -> None:
    """ "missing 1 required positional argument" was all that was said."""

    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return (x + y) * scale

    said = "; forward takes (x, y): give an --input for each"
    assert describe_fitting("net.py:Sum", Sum(), ["1x3"]) == said
    with pytest.raises(UsageError, match=re.escape(said)):
        run_reference(ExportMethod(Sum(), (torch.zeros(1, 3),)), torch.float32, ["1x3"])


def test_inputs_that_are_too_many_are_counted() -> None:
    """ "takes 2 positional arguments but 3 were given" counts self, which no user gives."""

    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    class Any(nn.Module):
        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            raise ValueError(tensors)

    told = "; forward takes 1 input, and 3 were given: leave out 2 --input"
    assert describe_fitting("net.py:Twice", Twice(), ["1x3", "1x3", "1x4"]) == told
    assert describe_fitting("net.py:Any", Any(), ["1x3", "1x3", "1x4"]) == ""


def test_a_file_that_the_models_code_lacks_is_an_input_file(tmp_path: Path) -> None:
    """Exit code 6 said that the model cannot be exported, and nothing said where the path starts."""
    (tmp_path / "net.py").write_text(
        "import torch\ndef make():\n    return torch.load('weights.pt')\n"
    )
    with pytest.raises(InputFileError) as caught:
        load_methods(f"{tmp_path / 'net.py'}:make", None, ("1x3",))
    assert "its code opens weights.pt, which does not exist" in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_misspelt_class_is_answered_with_the_users_own_inputs(tmp_path: Path) -> None:
    file = tmp_path / "nets.py"
    body = "(nn.Module):\n    def forward(self, x): return x\n"
    file.write_text(f"from torch import nn\nclass Other{body}class Net{body}")
    with pytest.raises(UsageError) as caught:
        load_methods(f"{file}:Nett", None, ("int64:1x17", "1x4"))
    command = f"`etprof profile {file}:Net --input int64:1x17 --input 1x4`"
    assert command in str(caught.value)
    assert "Other" not in str(caught.value)
