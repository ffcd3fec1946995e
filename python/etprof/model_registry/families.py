"""Models of other packages by the names they have there, such as `torchvision:resnet18`.

Weights are random, or those of a folder that the user names. Nothing is downloaded: what a package
would fetch is refused.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etprof.base.errors import BuildError, EtprofError, ExportError, InputFileError, UsageError
from etprof.base.json_input import read_json
from etprof.base.text import clean, suggest
from etprof.base.units import format_number

if TYPE_CHECKING:
    import torch

    from etprof.model_registry.eager_model import EagerModelBase, Inputs

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_MOST_PARAMETERS: Final = 10**9
_TOKENS: Final = 32
_MOST_CONFIG_BYTES: Final = 2**24
_IMPLEMENTATIONS: Final = frozenset(
    f"{start}{component}_implementation{end}"
    for start in ("", "_")
    for component in ("attn", "experts")
    for end in ("", "_internal")
)
"""Entries of a config.json that choose how a part of a model is computed."""
_OWN_CODE: Final = frozenset(("eager", "sdpa", "flex_attention", "grouped_mm", "batched_mm"))
"""Implementations that transformers and PyTorch have themselves."""


@dataclass(frozen=True)
class Family:
    """A package whose models can be named."""

    prefix: str
    package: str
    """What pip installs."""
    takes: str
    """What stands behind the colon."""
    example: str
    build: Callable[[str], tuple[torch.nn.Module, Inputs]]
    """Returns the model of a name and its inputs; raises UsageError for an unknown name."""

    @property
    def is_installed(self) -> bool:
        """Whether the package is here; it is not imported."""
        return importlib.util.find_spec(self.package) is not None


def find_family(name: str) -> tuple[Family, str] | None:
    """Returns the family that `name` begins with, and the rest; None where it names none."""
    prefix, colon, model_name = name.partition(":")
    family = FAMILIES.get(prefix) if colon else None
    return None if family is None else (family, model_name)


def executorch_names() -> Mapping[str, tuple[str, str]]:
    """Returns ExecuTorch's own names of models with module and class; none where it is missing."""
    if importlib.util.find_spec("executorch") is None:
        return {}
    # This module of ExecuTorch's is a table alone: it imports no model and no PyTorch.
    return dict(importlib.import_module("executorch.examples.models").MODEL_NAME_TO_MODEL)


def short_name(name: str) -> str:
    """Returns the name of a family's model for files, such as `torchvision_resnet18`."""
    prefix, _, model_name = name.partition(":")
    return re.sub(r"[^A-Za-z0-9_.-]", "_", f"{prefix}_{Path(model_name).name}")


def load_class(name: str) -> type[EagerModelBase]:
    """Returns a class for the model; raises BuildError for a package that is missing."""
    from etprof.model_registry.eager_model import EagerModelBase

    match = find_family(name)
    if match is None:
        raise UsageError(f"{name!r} names no family of models; known: {', '.join(FAMILIES)}")
    family, model_name = match
    if not family.is_installed:
        raise BuildError(f"model {name!r} needs {family.package}: pip install {family.package}")

    class FamilyModel(EagerModelBase):
        """Builds the model once, when it is first asked for."""

        @cached_property
        def _built(self) -> tuple[torch.nn.Module, Inputs]:
            with _nothing_downloaded(name):
                return family.build(model_name)

        def get_eager_model(self) -> torch.nn.Module:
            """Returns the network."""
            return self._built[0]

        def get_example_inputs(self) -> Inputs:
            """Returns random inputs of the size that the network is made for."""
            return self._built[1]

    return FamilyModel


@contextmanager
def _nothing_downloaded(name: str) -> Iterator[None]:
    """Refuses downloads, and says of a failure which package it came from."""
    import torch.hub

    # huggingface_hub reads it when it is imported.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    before = torch.hub.download_url_to_file

    def refuse(url: str, *_: object, **__: object) -> None:
        raise ExportError(
            f"model {name!r} would download {url}; etprof downloads no weights: use a model whose "
            "weights are random or local"
        )

    torch.hub.download_url_to_file = refuse
    try:
        yield
    finally:
        torch.hub.download_url_to_file = before


def _import(package: str) -> Any:  # noqa: ANN401 - a module
    """Imports a package; raises BuildError for one that does not fit this PyTorch."""
    import torch

    try:
        return importlib.import_module(package)
    # A package built for another PyTorch fails in its own way.
    except Exception as error:
        msg = f"{package} cannot be imported here ({type(error).__name__}: {error})"
        fitting = f"install the build of it that fits torch {torch.__version__}"
        raise BuildError(f"{msg}; {fitting}") from error


def _check_name(family: str, name: str, names: list[str]) -> None:
    if not _NAME.fullmatch(name) or name not in names:
        hint = suggest(name, names) if _NAME.fullmatch(name) else ""
        raise UsageError(f"{family} has no model {name!r}{hint or ';'} it has {len(names)}")


def _build_torchvision(name: str) -> tuple[torch.nn.Module, Inputs]:
    import torch

    models = _import("torchvision").models
    _check_name("torchvision", name, models.list_models())
    builder = models.get_model_builder(name)
    parameters = inspect.signature(builder).parameters
    none = {key: None for key in ("weights", "weights_backbone") if key in parameters}
    weights = next(iter(models.get_model_weights(name)), None)
    crop = getattr(weights.transforms(), "crop_size", 224) if weights is not None else 224
    sides = list(crop) if isinstance(crop, list | tuple) else [crop]
    height, width = sides[0], sides[-1]
    frames = (16,) if builder.__module__.startswith("torchvision.models.video") else ()
    return builder(**none), (torch.randn(1, 3, *frames, height, width),)


def _build_timm(name: str) -> tuple[torch.nn.Module, Inputs]:
    import torch

    timm = _import("timm")
    _check_name("timm", name, timm.list_models())
    module = timm.create_model(name, pretrained=False)
    size = module.default_cfg.get("input_size", (3, 224, 224))
    return module, (torch.randn(1, *size),)


def _build_hf(name: str) -> tuple[torch.nn.Module, Inputs]:
    import torch

    transformers = _import("transformers")
    folder = Path(name)
    is_folder = (folder / "config.json").is_file()
    if is_folder:
        _refuse_code(transformers, folder)
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    else:
        config = _default_config(transformers, name)
    config.use_cache = False
    kind = _model_class(transformers, config)
    _check_size(kind, config, name)
    if is_folder and list(folder.glob("*.safetensors")):
        model = kind.from_pretrained(
            folder, config=config, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
    else:
        model = kind(config)
    names, values = _hf_inputs(model, config)
    return _tensors_only(model, names), values


def _refuse_code(transformers: Any, folder: Path) -> None:  # noqa: ANN401 - a module
    """Raises InputFileError for a folder whose files would choose code that runs.

    Facts of transformers 5.24: `auto_map` names Python files of the folder; an implementation of
    attention or experts is a native kernel of a hub's where it has a slash, and those of flash
    attention fall back on such; `adapter_config.json` names the folder of another model.
    """
    path, way_out = folder / "config.json", "give the config.json of a model of transformers"
    config = read_json(path, way_out=way_out, most_bytes=_MOST_CONFIG_BYTES, error=InputFileError)
    if not isinstance(config, dict):
        raise InputFileError(f"{path} is no JSON object; {way_out}")
    kind = config.get("model_type")
    if config.get("auto_map") and kind not in transformers.CONFIG_MAPPING:
        raise InputFileError(
            f"{path}: auto_map names Python files of the folder, which etprof does not run, and "
            f"transformers has no model_type {clean(str(kind))!r} itself; write a "
            "path/to/file.py:Class that makes the model"
        )
    for key, value in _entries(config):
        if key in _IMPLEMENTATIONS and isinstance(value, str) and value not in _OWN_CODE:
            raise InputFileError(
                f"{path}: {key} {clean(value)!r} is code from elsewhere, which etprof does not load; "
                f"write one of {', '.join(sorted(_OWN_CODE))}, or leave it out"
            )
    if (folder / "adapter_config.json").exists():
        raise InputFileError(
            f"{folder / 'adapter_config.json'} would make transformers load another model; save the "
            "model with its adapter merged"
        )


def _entries(node: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yields what a JSON value holds, each with the nearest name of an object's above it."""
    if isinstance(node, dict):
        for name, value in node.items():
            # A table of implementations: by the names of a model's parts.
            yield from _entries(value, key if key in _IMPLEMENTATIONS else name)
    elif isinstance(node, list):
        for value in node:
            yield from _entries(value, key)
    else:
        yield key, node


def _default_config(transformers: Any, name: str) -> Any:  # noqa: ANN401 - transformers'
    kind = getattr(transformers, name, None) if _NAME.fullmatch(name) else None
    if not (inspect.isclass(kind) and issubclass(kind, transformers.PretrainedConfig)):
        raise UsageError(
            f"hf:{name} is neither a folder with a config.json nor a configuration class of "
            "transformers, such as hf:BertConfig; nothing is downloaded"
        )
    return kind()


def _model_class(transformers: Any, config: Any) -> Any:  # noqa: ANN401 - transformers'
    """Returns the class that the configuration names, or the plain model of its kind."""
    for name in getattr(config, "architectures", None) or ():
        kind = getattr(transformers, str(name), None)
        if inspect.isclass(kind) and issubclass(kind, transformers.PreTrainedModel):
            return kind
    return transformers.MODEL_MAPPING[type(config)]


def _check_size(kind: Any, config: Any, name: str) -> None:  # noqa: ANN401 - transformers'
    """Raises UsageError for a model that would not fit, before any of its memory is taken."""
    import torch

    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in kind(config).parameters())
    if count > _MOST_PARAMETERS:
        raise UsageError(
            f"hf:{name} has {format_number(count / 1e9)} billion parameters, more than 1 billion; write a "
            "config.json with smaller sizes into a folder and name that"
        )


def _hf_inputs(model: Any, config: Any) -> tuple[list[str], Inputs]:  # noqa: ANN401 - transformers'
    """Returns the names and values of a model's inputs, after the one it is made for."""
    import torch

    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    main = str(model.main_input_name)
    if main == "pixel_values":
        size = getattr(config, "image_size", 224)
        sides = size if isinstance(size, list | tuple) else (size, size)
        return [main], (torch.randn(1, getattr(config, "num_channels", 3), *sides),)
    if main != "input_ids":
        raise ExportError(
            f"{type(model).__name__} takes {main}, of which etprof knows no example; write a "
            "path/to/file.py:Class with get_example_inputs"
        )
    tokens = torch.randint(0, int(text.vocab_size), (1, _TOKENS))
    if getattr(config, "is_encoder_decoder", False):
        return [main, "decoder_input_ids"], (tokens, tokens.clone())
    return [main], (tokens,)


def _tensors_only(model: torch.nn.Module, names: list[str]) -> torch.nn.Module:
    """Wraps a model of transformers: inputs by position, tensors as outputs."""
    import torch

    class TensorsOnly(torch.nn.Module):
        """Gives the tensors among the model's outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            """Calls the model by the names of its inputs."""
            outputs = self.model(**dict(zip(names, values, strict=True)), return_dict=True)
            return tuple(value for value in outputs.values() if isinstance(value, torch.Tensor))

    return TensorsOnly()


def _build_executorch(name: str) -> tuple[torch.nn.Module, Inputs]:
    models = executorch_names()
    _check_name("executorch", name, sorted(models))
    module, kind = models[name]
    try:
        model = getattr(importlib.import_module(f"executorch.examples.models.{module}"), kind)()
        return model.get_eager_model(), tuple(model.get_example_inputs())
    except EtprofError:
        raise
    except ModuleNotFoundError as error:
        missing = (error.name or str(error)).partition(".")[0]
        raise BuildError(f"executorch:{name} needs {missing}: pip install {missing}") from error
    # The examples are written by many.
    except Exception as error:
        raise ExportError(
            f"executorch:{name} cannot be created: {type(error).__name__}: {error}"
        ) from error


FAMILIES: Final[Mapping[str, Family]] = {
    family.prefix: family
    for family in (
        Family("torchvision", "torchvision", "a name of torchvision.models.list_models()",
               "torchvision:resnet18", _build_torchvision),
        Family("timm", "timm", "a name of timm.list_models()", "timm:vit_tiny_patch16_224",
               _build_timm),
        Family("hf", "transformers", "a folder with a config.json, or a configuration class",
               "hf:BertConfig", _build_hf),
        Family("executorch", "executorch", "a name of ExecuTorch's own examples",
               "executorch:lstm", _build_executorch),
    )
}  # fmt: skip
