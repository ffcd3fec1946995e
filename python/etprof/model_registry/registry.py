"""Finds models: in the folders that come with etprof, and wherever the user keeps their own."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from etprof.base.errors import EtprofError, ExportError, UsageError
from etprof.base.files import hash_file, read_bounded
from etprof.base.text import command_line, join_names, suggest
from etprof.base.units import count_of
from etprof.model_registry import families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType

    from etprof.model_registry.eager_model import EagerModelBase

ENTRY_POINT_GROUP = "etprof.models"
PATH_VARIABLE = "ETPROF_MODEL_PATH"
FOLDER_PACKAGE = "etprof_model_folder_"
"""How the packages begin that folders of models are imported as; the folder's path follows."""
_DIGEST = "__etprof_digest__"
"""Attribute of such a package: a SHA-256 of the files that its modules were imported from."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders into which packages are installed."""
_EXECUTORCH_NAMES = {"mv2": "mobilenet_v2", "mv3": "mobilenet_v3_small"}
"""What ExecuTorch's examples call the same models."""
_WEIGHTS = frozenset({".pt", ".pth", ".ckpt", ".bin", ".safetensors"})
_SHOWN_CLASSES = 3
_MOST_SEARCHED = 100
"""Files of a folder, for a class whose file was left out."""
_LARGEST_SEARCHED = 2**20
"""Bytes of such a file; source files are far smaller."""
_SAVED: Final = ".pt2"
_INTERFACE = ("get_eager_model", "get_example_inputs")


@dataclass(frozen=True)
class ModelSource:
    """Where a model's class can be found; nothing of it is imported yet."""

    name: str
    origin: str
    """The file, or the entry point as `module:Class`; shown to the user."""
    file: Path | None = None
    class_name: str | None = None
    """Of a class, a module or a function; None when the file's only model is meant."""
    entry_point: EntryPoint | None = None
    is_of_family: bool = False
    """Whether another package has it, under the name behind the colon."""

    @property
    def is_saved_program(self) -> bool:
        """Whether it is a file of `torch.export.save`."""
        return self.file is not None and self.file.suffix == _SAVED

    def load_class(self, inputs: Sequence[str] = ()) -> Callable[[], EagerModelBase]:
        """Imports the model's class, or returns what makes a model of a plain module.

        `inputs` are the user's own `--input`, which messages repeat.

        Raises ExportError with the cause when that fails, and BuildError for a family's model whose
        package is missing.
        """
        if self.is_of_family:
            return families.load_class(self.name)
        if self.is_saved_program:
            from etprof.model_registry.saved_program import SavedProgram

            return partial(SavedProgram, cast("Path", self.file))
        try:
            if self.entry_point is not None:
                loaded = self.entry_point.load()
                return _checked_class(loaded, self.origin, "", self.name)
            module = _import_file(cast("Path", self.file))
        except ModuleNotFoundError as error:
            raise ExportError(
                f"model {self.name!r} needs a package that is missing here: pip install "
                f"{_package_name(error)} ({self.origin}: {error})"
            ) from error
        # A user's module may raise anything when it is imported.
        except Exception as error:
            if isinstance(error, ExportError):
                raise
            raise ExportError(
                f"cannot import model {self.name!r} from {self.origin}: {_describe(error)}"
            ) from error
        return _find_class(module, self, inputs)

    def hash_files(self) -> str | None:
        """Returns a SHA-256 of the model's files; None for a model of an installed package.

        A model may import its neighbours, and those of etprof what stands beside the folders.
        """
        if self.file is None:
            return None
        if self.is_saved_program:
            return hash_file(self.file)
        folder = self.file.resolve().parent
        return _hash_python_files(folder, folder.parent)


def find_models() -> dict[str, ModelSource]:
    """Returns every model that can be named, sorted; raises UsageError when two share a name."""
    models: dict[str, ModelSource] = {}
    for source in (*_folder_models(), *_entry_point_models()):
        if source.name in models:
            first = models[source.name].origin
            raise UsageError(
                f"two models are called {source.name!r}: {first} and {source.origin}; rename one"
            )
        models[source.name] = source
    return dict(sorted(models.items()))


def find_model(name: str) -> ModelSource:
    """Returns the model called `name`, or the class in `path/to/file.py:ClassName`.

    `torchvision:resnet18` and its like are models of other packages, `net.pt2` is a program of
    `torch.export.save`. Raises UsageError when there is none; no model is ever taken for another.
    """
    if families.find_family(name) is not None:
        return ModelSource(name, name, is_of_family=True)
    if name.endswith(".py") or ".py:" in name:
        return _source_of_file(name)
    if name.endswith(_SAVED):
        return ModelSource(Path(name).stem, name, _existing(name))
    models = find_models()
    if name not in models:
        _refuse_other_files(name)
        names = ", ".join(models)
        hint = _hint(name, models)
        raise UsageError(
            f"no model is called {name!r}; {hint}known: {names}; or give path/to/file.py:Class or "
            "FILE.pt2"
        )
    return models[name]


def _refuse_other_files(name: str) -> None:
    """Raises UsageError for a program, and for a class of a file that has none."""
    file, colon, class_name = name.rpartition(":")
    if colon and file.endswith(_SAVED):
        raise UsageError(f"{file} is one model, without classes: leave out :{class_name}")
    if Path(name).is_dir():
        msg = f"{name} is a directory; give a file in it, such as {Path(name, 'net.py')}:Net, or a"
        raise UsageError(f"{msg} .pt2 or .pte")
    if name.endswith(".pte") and Path(name).is_file():
        msg = f"{name} is exported already; name the model that it was made of"
        raise UsageError(f"{msg}, such as path/to/file.py:Class")


def _hint(name: str, models: Iterable[str]) -> str:
    """Says what may have been meant: a model, whatever its spelling, or a file."""
    if Path(name).suffix in _WEIGHTS:
        return (
            "a model's file ends in .py or .pt2 (torch.export.save); weights are for --weights, "
            "beside the model; "
        )
    if Path(name).exists() or Path(name).suffix == ".onnx":
        return "a program's name ends in .pte, a model's file in .py or .pt2 (torch.export.save); "
    file = _file_with_class(name)
    if file is not None:
        return f"did you mean '{file}:{name}'? "
    name = _EXECUTORCH_NAMES.get(name, name)
    if name in families.executorch_names():
        return f"did you mean 'executorch:{name}'? "
    plain = {re.sub(r"[\W_]", "", model).lower(): model for model in models}
    close = difflib.get_close_matches(re.sub(r"[\W_]", "", name).lower(), plain, n=1)
    return f"did you mean {plain[close[0]]!r}? " if close else ""


def _file_with_class(name: str) -> Path | None:
    """Returns a Python file of this folder that defines a class or function of that name."""
    definition = re.compile(rf"^(?:class|def) {re.escape(name)}\b", re.MULTILINE)
    for path in sorted(Path().glob("*.py"))[:_MOST_SEARCHED]:
        try:
            text = read_bounded(path, _LARGEST_SEARCHED).decode("utf-8", "replace")
        except OSError:
            # It is a hint only: what cannot be read has none.
            continue
        if definition.search(text):
            return path
    return None


def load_model(name: str, inputs: Sequence[str] = ()) -> EagerModelBase:
    """Returns the model called `name`, with `inputs` in place of its own where some are given.

    `inputs` are as `--input` takes them. Raises ExportError when the model cannot be created.
    """
    import torch

    source = find_model(name)
    # What a file draws when it is imported, which is once, does not move the weights drawn after it.
    with torch.random.fork_rng(devices=[]):
        create = source.load_class(inputs)
    try:
        model = create()
    except EtprofError:
        raise
    # The constructor is the user's code.
    except Exception as error:
        raise ExportError(
            f"cannot create model {name!r} ({source.origin}): {_describe(error)}"
        ) from error
    if not inputs:
        return model
    from etprof.model_registry.plain_model import ModelWithInputs

    return ModelWithInputs(getattr(model, "inner", model), inputs, name)


def _folder_models() -> Iterator[ModelSource]:
    """Yields the models of etprof's own folder and of each folder in ETPROF_MODEL_PATH."""
    user = [path for path in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if path]
    for folder in (*find_model_folders(), *(Path(path).absolute() for path in user)):
        if not folder.is_dir():
            raise UsageError(f"{PATH_VARIABLE} names {folder}, which is not a folder")
        for file in sorted(folder.glob("*/model.py")):
            yield ModelSource(file.parent.name, str(file), file=file)


def find_model_folders() -> list[Path]:
    """Returns the folder of etprof's own models: installed, or the repository's."""
    return [Path(path).resolve() for path in importlib.import_module("etprof.models").__path__]


def _entry_point_models() -> Iterator[ModelSource]:
    """Yields the models that installed packages declare."""
    for point in entry_points(group=ENTRY_POINT_GROUP):
        yield ModelSource(point.name, f"entry point {point.value}", entry_point=point)


def _source_of_file(text: str) -> ModelSource:
    """Returns the source of `path/to/file.py` or `path/to/file.py:ClassName`."""
    path_text, colon, class_name = text.rpartition(":")
    if not colon or class_name.endswith(".py"):
        path_text, class_name = text, ""
    file = _existing(path_text)
    return ModelSource(class_name or file.stem, str(file), file, class_name or None)


def _existing(path_text: str) -> Path:
    file = Path(path_text)
    if not file.is_file():
        neighbours = file.parent.glob("*.py") if file.parent.is_dir() else ()
        # By what tells files apart: all of them end alike.
        stems = difflib.get_close_matches(file.stem, [path.stem for path in neighbours], n=1)
        hint = suggest(file.name, [f"{stem}.py" for stem in stems])
        raise UsageError(f"model file {file} does not exist{hint}")
    return file


def _import_file(file: Path) -> ModuleType:
    """Imports a Python file as a module of a package made of its folder.

    The package lets `model.py` import its neighbours with `from . import …`. Where it imports one by
    its name alone, as a script would, its folder is added to the end of `sys.path`. Models that come
    with etprof keep the name they are installed under. A file that was edited since is imported
    again: a notebook lives longer than the code it profiles.
    """
    folder = file.resolve().parent
    if folder.parent in find_model_folders():
        return importlib.import_module(f"etprof.models.{folder.name}.{file.stem}")
    package_name = f"{FOLDER_PACKAGE}{folder.as_posix().encode().hex()}"
    digest = _hash_python_files(folder)
    previous = sys.modules.get(package_name)
    if getattr(previous, _DIGEST, None) != digest:
        spec = importlib.util.spec_from_loader(package_name, loader=None, is_package=True)
        package = importlib.util.module_from_spec(cast("importlib.machinery.ModuleSpec", spec))
        package.__path__ = [str(folder)]
        setattr(package, _DIGEST, digest)
        for name in [n for n in sys.modules if n.startswith(f"{package_name}.")]:
            del sys.modules[name]
        # What a script imported itself before its first model is not older than the model.
        if previous is not None and str(folder) in sys.path:
            for name in [n for n, m in sys.modules.items() if _is_code_of(folder, n, m)]:
                del sys.modules[name]
        importlib.invalidate_caches()
        sys.modules[package_name] = package
    try:
        return importlib.import_module(f"{package_name}.{file.stem}")
    except ModuleNotFoundError as error:
        neighbour = folder / _package_name(error)
        is_there = neighbour.is_dir() or neighbour.with_suffix(".py").is_file()
        if not is_there or str(folder) in sys.path:
            raise
    sys.path.append(str(folder))
    return importlib.import_module(f"{package_name}.{file.stem}")


def _is_code_of(folder: Path, name: str, module: ModuleType) -> bool:
    """Whether a module is somebody's code in a folder, which may have been edited.

    Neither is the script that runs, nor what an environment inside the folder has installed: torch
    cannot be imported twice.
    """
    origin = getattr(module, "__file__", None)
    if name == "__main__" or name.partition(".")[0] == "etprof" or not isinstance(origin, str):
        return False
    file = Path(origin)
    if not file.is_relative_to(folder) or _INSTALLED & {*file.relative_to(folder).parts}:
        return False
    prefixes = {Path(sys.prefix), Path(sys.base_prefix)}
    environments = [prefix for prefix in prefixes if folder in prefix.parents]
    return not any(file.is_relative_to(prefix) for prefix in environments)


def _hash_python_files(folder: Path, *further_folders: Path) -> str:
    """Returns a SHA-256 of the names and contents of the Python files in the folders."""
    digest = hashlib.sha256()
    paths = {path for searched in (folder, *further_folders) for path in searched.glob("*.py")}
    for path in sorted(paths):
        if path.is_file():
            digest.update(f"{path.relative_to(folder.parent).as_posix()}\0".encode())
            digest.update(bytes.fromhex(hash_file(path)))
    return digest.hexdigest()


def _find_class(
    module: ModuleType, source: ModelSource, inputs: Sequence[str]
) -> Callable[[], EagerModelBase]:
    """Returns the model asked for, or the module's only one."""
    name = source.class_name
    if name is not None:
        if not hasattr(module, name):
            way_out = _way_out(module, source, inputs)
            raise UsageError(f"{source.origin} has no class {name!r}{way_out}")
        return _checked_class(
            getattr(module, name),
            source.origin,
            _way_out(module, source, inputs),
            f"{source.file}:{name}",
        )
    models = _models_of(module)
    if len(models) != 1:
        raise UsageError(
            f"{source.origin} has {count_of(len(models), 'model')}, not one{_way_out(module, source, inputs)}"
        )
    return _checked_class(models[0], source.origin, "", f"{source.file}:{models[0].__name__}")


def _models_of(module: ModuleType) -> list[type]:
    """Returns the module's own classes with the interface; without any, those of plain modules."""
    models = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    return [value for value in models if _has_interface(value)] or [
        value for value in models if _is_plain(value)
    ]


def _way_out(module: ModuleType, source: ModelSource, inputs: Sequence[str]) -> str:
    """Says which models the file has, or what to write; as commands that can be run."""
    models = _models_of(module)
    if models and any(map(_has_interface, models)):
        names = [f"{source.file}:{value.__name__}" for value in models[:_SHOWN_CLASSES]]
        return f"; give {' or '.join(names)}"
    names = [value.__name__ for value in models]
    # The nearest is what was meant.
    names = difflib.get_close_matches(source.class_name or "", names, n=1) or names[:_SHOWN_CLASSES]
    flags = [argument for text in inputs or ["1x3x224x224"] for argument in ("--input", text)]
    shown = [
        f"`{command_line('profile', f'{source.file}:{name}', *flags)}`" for name in names or ["Net"]
    ]
    return (
        f"; name a torch.nn.Module, or a function that returns one, with the shape of each input: "
        f"{' or '.join(shown)}; `etprof docs own_model` has more"
    )


def _has_interface(value: object) -> bool:
    return all(callable(getattr(value, name, None)) for name in _INTERFACE)


def _is_plain(value: object) -> bool:
    """Whether it is a plain module; PyTorch is asked only where the file has imported it."""
    from etprof.model_registry.plain_model import is_plain

    return is_plain(value)


def _checked_class(
    value: object, origin: str, way_out: str, name: str
) -> Callable[[], EagerModelBase]:
    """Returns what creates the model; `name` is how its user names it."""
    if _has_interface(value):
        if inspect.isclass(value):
            return cast("type[EagerModelBase]", value)
        return lambda: cast("EagerModelBase", value)
    partly = [method for method in _INTERFACE if hasattr(value, method)]
    if _is_plain(value) and not partly:
        from etprof.model_registry.plain_model import wrap

        return wrap(value, name)
    if not inspect.isclass(value):
        raise ExportError(
            f"{origin}: {value!r} is not a torch.nn.Module, a class or a function{way_out}"
        )
    missing = [method for method in _INTERFACE if method not in partly]
    kind = "" if partly else " is not a torch.nn.Module and"
    raise ExportError(
        f"{origin}: class {value.__name__!r}{kind} lacks {join_names(missing)}{way_out}"
    )


def _package_name(error: ModuleNotFoundError) -> str:
    """Returns the top-level package that an import did not find."""
    return (error.name or str(error)).partition(".")[0]


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
