from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from etprof.base.errors import EtprofError, ExportError, UsageError
from etprof.export.request import ExportRequest
from etprof.export.session import describe_source
from etprof.model_registry import registry
from etprof.model_registry.eager_model import EagerModelBase, collect_methods
from etprof.run.program import ExportManifest

MODEL = """
    from torch import nn, zeros

    class Tiny:
        def get_eager_model(self):
            return nn.ReLU()

        def get_example_inputs(self):
            return (zeros(1),)
"""


def write_model(folder: Path, name: str, text: str = MODEL) -> Path:
    file = folder / name / "model.py"
    file.parent.mkdir(parents=True)
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return file


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my_models"
    folder.mkdir()
    monkeypatch.setenv("ETPROF_MODEL_PATH", str(folder))
    return folder


def test_built_in_models_are_found_by_their_folders() -> None:
    assert registry.find_models()["toy_cnn"].origin.endswith("toy_cnn/model.py")


def test_a_model_in_the_users_folder_is_found_and_loaded(user_folder: Path) -> None:
    # GIVEN a class that has the interface without deriving from EagerModelBase
    write_model(user_folder, "tiny")
    # THEN it is listed beside the built-in ones, and loads
    assert {"tiny", "toy_cnn"} <= set(registry.find_models())
    assert type(registry.load_model("tiny")).__name__ == "Tiny"


def test_a_model_file_may_import_its_neighbours(tmp_path: Path) -> None:
    file = write_model(tmp_path, "pair", "from .part import Tiny as Base\nclass Own(Base): pass\n")
    (file.parent / "part.py").write_text(textwrap.dedent(MODEL), encoding="utf-8")
    assert type(registry.load_model(f"{file}:Own")).__name__ == "Own"
    # Without a class name the file's own class is meant, not the imported one.
    assert type(registry.load_model(str(file))).__name__ == "Own"


def test_a_neighbour_may_be_imported_by_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`from kws import DS`, with kws.py beside it, was answered with `pip install kws`."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    (tmp_path / "kws_layers").mkdir()
    (tmp_path / "kws_layers" / "__init__.py").write_text("from kws_width import WIDTH\n")
    text = "from kws_layers import WIDTH\n" + textwrap.dedent(MODEL) + "    width = WIDTH\n"
    (tmp_path / "net.py").write_text(text)
    widths = []
    try:
        for width in (3, 44):
            (tmp_path / "kws_width.py").write_text(f"WIDTH = {width}\n")
            loaded = registry.find_model(f"{tmp_path / 'net.py'}:Tiny").load_class()
            widths.append(getattr(loaded, "width", None))
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
    # Edited since, it is imported again, as the model is.
    assert widths == [3, 44]
    # AND whatever is installed comes first
    assert sys.path[-1] == str(tmp_path)


def test_code_that_was_edited_is_imported_again(tmp_path: Path) -> None:
    """A notebook exported the old code and recorded the digest of the new."""
    neighbour, model = tmp_path / "size.py", tmp_path / "net.py"
    model.write_text(
        "from .size import SIZE\n\n\nclass Net:\n    size = SIZE\n"
        "    def get_eager_model(self): ...\n    def get_example_inputs(self): ...\n"
    )
    loaded = []
    for size in (1, 22):
        neighbour.write_text(f"SIZE = {size}\n")
        loaded.append(registry.find_model(f"{model}:Net").load_class())
    assert [getattr(kind, "size", None) for kind in loaded] == [1, 22]
    # AND what was not edited is one class
    assert registry.find_model(f"{model}:Net").load_class() is loaded[-1]


_STUDY = """
import sys
import installed
import net
from pathlib import Path
from etprof.model_registry import registry

kept = [sys.modules[name] for name in ("__main__", "installed", "etprof")]
mine = net
first = registry.find_model("net.py:Tiny").load_class()
assert sys.modules["net"] is mine, "imported by the script, before there was a model"
Path("width.py").write_text("WIDTH = 44\\n")
second = registry.find_model("net.py:Tiny").load_class()
assert [sys.modules.get(name) for name in ("__main__", "installed", "etprof")] == kept
print(first.width, second.width)
"""


@pytest.mark.parametrize("folder", ["env/lib/site-packages", "own environment/lib"])
def test_a_script_beside_its_model_keeps_what_it_runs_with(tmp_path: Path, folder: str) -> None:
    """A virtual environment inside the project was thrown away too: `bad call flags` in torch."""
    packages = tmp_path / folder
    packages.mkdir(parents=True)
    (packages / "installed.py").write_text("")
    (tmp_path / "width.py").write_text("WIDTH = 3\n")
    text = f"from width import WIDTH\n{textwrap.dedent(MODEL)}    width = WIDTH\n"
    (tmp_path / "net.py").write_text(text)
    prefix = (
        f"import sys; sys.path.insert(0, {str(packages)!r}); sys.prefix = {str(packages.parent)!r}"
    )
    (tmp_path / "study.py").write_text(f"{prefix}\n{_STUDY}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "study.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "3 44\n", "")


def test_the_hash_of_a_models_code_follows_every_file_it_may_import(tmp_path: Path) -> None:
    files = [write_model(tmp_path, name) for name in ("net", "other")]
    shared, neighbour = tmp_path / "shared.py", tmp_path / "net" / "parts.py"
    sources = [registry.find_model(str(file)) for file in files]
    seen = {source.hash_files() for source in sources}
    assert len(seen) == 2  # one text in two folders: two models
    for file, text in ((files[0], "# new"), (neighbour, "# new"), (shared, "1"), (shared, "2")):
        file.write_text(text, encoding="utf-8")
        found = sources[0].hash_files()
        assert found not in seen
        seen.add(found)
    # AND nothing else, such as the time of a file
    os.utime(files[0], (0, 0))
    assert sources[0].hash_files() == found


def test_two_models_of_one_name_are_an_error(user_folder: Path) -> None:
    file = write_model(user_folder, "toy_cnn")
    first = registry.find_model_folders()[0] / "toy_cnn" / "model.py"
    with pytest.raises(UsageError) as caught:
        registry.find_models()
    assert str(caught.value) == (f"two models are called 'toy_cnn': {first} and {file}; rename one")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("toy_cn", "toy_cnn"),
        ("mv2", "mobilenet_v2"),
        ("mv3", "mobilenet_v3_small"),
        ("resnet50", "executorch:resnet50"),
        ("w2l", "executorch:w2l"),
        ("dl3", "executorch:dl3"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(name: str, meant: str) -> None:
    """R052: names of ExecuTorch's own examples were told nothing of their prefix."""
    with pytest.raises(
        UsageError, match=rf"no model is called '{name}'; did you mean '{meant}'\? "
    ):
        registry.find_model(name)


def test_a_folder_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETPROF_MODEL_PATH", "/nowhere")
    with pytest.raises(UsageError) as caught:
        registry.find_models()
    assert str(caught.value) == "ETPROF_MODEL_PATH names /nowhere, which is not a folder"


BROKEN = {
    "missing-package": (
        "import no_such_package.inner",
        (
            "model 'bad' needs a package that is missing here: pip install no_such_package "
            "({file}: No module named 'no_such_package')"
        ),
    ),
    "import-error": (
        "raise RuntimeError('no weights')",
        "cannot import model 'bad' from {file}: RuntimeError: no weights",
    ),
    "no-class": (
        "",
        (
            "{file} has 0 models, not one; name a torch.nn.Module, or a function that returns one, "
            "with the shape of each input: `etprof profile {file}:Net --input 1x3x224x224`; "
            "`etprof docs own_model` has more"
        ),
    ),
    "two-classes": (
        textwrap.dedent(MODEL) + "class Other(Tiny): pass",
        ("{file} has 2 models, not one; give {file}:Tiny or {file}:Other"),
    ),
    "constructor-fails": (
        textwrap.dedent(MODEL) + "    def __init__(self): raise ValueError('which size?')",
        "cannot create model 'bad' ({file}): ValueError: which size?",
    ),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_a_model_that_cannot_be_loaded_says_why(user_folder: Path, text: str, message: str) -> None:
    file = write_model(user_folder, "bad", text)
    with pytest.raises((ExportError, UsageError)) as caught:
        registry.load_model("bad")
    assert str(caught.value) == message.format(file=file)


def test_a_class_named_in_a_file_is_checked(tmp_path: Path) -> None:
    file = write_model(tmp_path, "m", textwrap.dedent(MODEL) + "class Half: pass\nvalue = 3\n")
    for name, message in {
        "Absent": f"{file} has no class 'Absent'; give {file}:Tiny",
        "Half": f"{file}: class 'Half' is not a torch.nn.Module and lacks get_eager_model and "
        f"get_example_inputs; give {file}:Tiny",
        "value": f"{file}: 3 is not a torch.nn.Module, a class or a function; give {file}:Tiny",
    }.items():
        with pytest.raises(EtprofError) as caught:
            registry.load_model(f"{file}:{name}")
        assert str(caught.value) == message


def test_a_model_file_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        registry.find_model("nowhere/model.py:Tiny")
    assert str(caught.value) == "model file nowhere/model.py does not exist"


def test_a_file_is_not_taken_for_one_that_only_ends_alike(tmp_path: Path) -> None:
    (tmp_path / "two.py").touch()
    for name, hint in (("nope.py", ""), ("tow.py", "; did you mean 'two.py'?")):
        with pytest.raises(UsageError) as caught:
            registry.find_model(f"{tmp_path / name}:Net")
        assert str(caught.value) == f"model file {tmp_path / name} does not exist{hint}"


@pytest.mark.parametrize("words", ["Tiny", "", "mine", "torchvision:resnet18"])
def test_commands_find_the_model_under_the_name_that_findings_give_it(
    tmp_path: Path, user_folder: Path, words: str
) -> None:
    """Issue 18's trial: `etprof export Net` was suggested for a class in a file, and does not exist."""
    file = write_model(tmp_path / "elsewhere", "m", MODEL)
    write_model(user_folder, "mine", MODEL)
    named = {"Tiny": f"{file}:Tiny", "": str(file)}.get(words, words)
    exported = ExportManifest(
        model=ExportRequest(named).model_name(), backend="xnnpack", precision="fp16",
        source=describe_source(named),
    )  # fmt: skip
    assert registry.find_model(exported.asked_as).origin == registry.find_model(named).origin
    assert ExportRequest(exported.asked_as).model_name() == exported.model


def test_the_earlier_name_of_the_interface_warns_and_is_the_same_class() -> None:
    sys.modules.pop("etprof.export.eager_model", None)
    with pytest.warns(DeprecationWarning, match="model_registry.eager_model"):
        earlier = importlib.import_module("etprof.export.eager_model")
    assert earlier.EagerModelBase is EagerModelBase


@pytest.mark.parametrize(
    ("methods", "problem"),
    [
        (None, "get_methods returns nothing;"), ({}, "get_methods returns nothing;"),
        ([1], "get_methods returns an object of class list;"),
        ({"forward": 1}, "get_methods gives an object of class int for 'forward';"),
    ],
)  # fmt: skip
def test_methods_of_another_form_are_refused_with_the_form(methods: object, problem: str) -> None:
    """It was: AttributeError: 'list' object has no attribute 'items'."""
    model = cast("EagerModelBase", SimpleNamespace(get_methods=lambda: methods))
    with pytest.raises(ExportError) as caught:
        collect_methods(model)
    assert str(caught.value).startswith(problem)
    assert 'return a dict by name, such as {"forward": ExportMethod(' in str(caught.value)
