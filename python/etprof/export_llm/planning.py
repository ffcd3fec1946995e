"""What an export of a language model is asked for: the YAML, its files, and what becomes of them."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etprof.backends.registry import DEFAULT
from etprof.base.errors import UsageError
from etprof.base.files import check_regular, expand_home, read_input
from etprof.base.json_input import parse_json, read_json
from etprof.base.text import clean, suggest
from etprof.export.request import ExportedFiles
from etprof.export_llm.schema import LlmSettings, read_settings
from etprof.export_llm.uses import LIBRARY, TASK_NAME
from etprof.run.directory import safe_name
from etprof.run.manifest import FileIdentity, identify

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_BYTES: Final = 2**24
"""Of the network's parameters."""
_EXAMPLES: Final = "examples/models/llama"
_LIBRARY: Final = "export.so_library"
_GIVEN_TWICE: Final = {
    "max_seq_len": "export.max_seq_length", "max_context_len": "export.max_context_length",
    "use_kv_cache": "model.use_kv_cache", "generate_full_logits": "debug.generate_full_logits",
    "use_sdpa_with_kv_cache_op": "model.use_sdpa_with_kv_cache",
    "enable_dynamic_shape": "model.enable_dynamic_shape",
    "input_prune_map": "model.input_prune_map", "output_prune_map": "model.output_prune_map",
    "max_batch_size": "nothing, for it is 1", "r": "base.lora_config.lora_rank",
    "lora_alpha": "base.lora_config.lora_alpha",
    "target_modules": "base.lora_config.target_modules",
}  # fmt: skip
"""Fields of the network's parameters that ExecuTorch sets by the YAML, and by which setting."""


@dataclass(frozen=True)
class LlmRequest:
    """One YAML, and what is done with it."""

    config: Path
    out: Path | None = None
    """The program's own path."""
    outdir: Path | None = None
    download: bool = False
    """ExecuTorch may fetch weights and calibration data from the network."""
    so_library: Path | None = None
    """A native library of operators that ExecuTorch may load, and so run."""
    timeout_s: float = 7200.0


@dataclass(frozen=True)
class LlmPlan:
    """A request that can be met, as far as it can be known without PyTorch."""

    request: LlmRequest
    settings: LlmSettings
    files: ExportedFiles
    weights: str
    """`checkpoint`, `random` or `downloaded`."""
    paths: dict[str, Path]
    """Files that the export reads, absolute, by setting."""
    identities: dict[str, FileIdentity] = field(default_factory=dict)
    """The same, by content."""

    @property
    def name(self) -> str:
        """The model's: that of its YAML."""
        return safe_name(self.request.config.stem)

    @property
    def precision(self) -> str:
        """How its numbers are stored, such as `fp32` or `8da4w_g32`."""
        return _precision(self.settings)

    @property
    def has_record(self) -> bool:
        """Whether ExecuTorch describes the program, which the YAML alone can forbid."""
        return bool(self.settings.document.get("debug", {}).get("generate_etrecord", True))

    @property
    def backend(self) -> str:
        """The delegate."""
        return DEFAULT if self.settings.get(f"backend.{DEFAULT}.enabled") else "portable"

    def reads(self) -> dict[str, dict[str, str]]:
        """Returns what ExecuTorch is made to read, and as what, by setting."""
        uses = {setting: use for setting, (use, _) in self.settings.uses.items()}
        return {
            setting: {"path": str(path), "read_as": uses.get(setting, LIBRARY).says}
            for setting, path in self.paths.items()
        }

    def record(self) -> dict[str, Any]:
        """Returns what was asked, as the export manifest keeps it."""
        return {
            "config": self.identities["config"].model_dump(),
            "settings": self.settings.document,
            "weights": self.weights,
            "files": {k: v.model_dump() for k, v in self.identities.items() if k != "config"},
            "download": self.request.download,
            "model_class": self.settings.get("base.model_class"),
            "max_seq_length": self.settings.get("export.max_seq_length"),
            "max_context_length": self.settings.get("export.max_context_length"),
        }


def plan_export(request: LlmRequest) -> LlmPlan:
    """Checks everything that can be checked at once; raises UsageError that names the field."""
    settings = read_settings(request.config)
    _check_settings(settings)
    paths = {
        setting: _find(settings, setting, text)
        for setting, text in settings.of_kind("file").items()
    }
    paths |= _find_library(settings, request.so_library)
    if "base.params" not in paths:
        settings.refuse(
            "base.params",
            "is missing: a JSON file with the network's sizes, such as dim and n_layers; without it "
            "ExecuTorch takes those of no model",
        )
    model_class = settings.get("base.model_class")
    if model_class not in _literal("export_llama_lib.py", "TORCHTUNE_DEFINED_MODELS"):
        _check_params(paths["base.params"])
    weights = _find_weights(settings, model_class, download=request.download)
    if request.out is not None and request.outdir is not None:
        raise UsageError("-o names the file and --outdir its folder; give one of them")
    if request.out is not None and request.out.suffix != ".pte":
        raise UsageError(f"-o {request.out} must end in .pte")
    plan = LlmPlan(request, settings, ExportedFiles(Path()), weights, paths)
    folder = request.outdir or Path(f"out_{plan.name}") / "artifacts"
    program = request.out or folder / safe_name(f"{plan.name}_{plan.backend}_{plan.precision}.pte")
    identities = {setting: identify(path) for setting, path in paths.items()}
    identities["config"] = identify(request.config)
    return LlmPlan(request, settings, ExportedFiles(program), weights, paths, identities)


def _check_settings(settings: LlmSettings) -> None:
    for setting, (use, _) in settings.uses.items():
        if use.kind == "refused":
            settings.refuse(setting, f"is not for etprof: {use.says}; leave it out")
    for setting, names in settings.of_kind("tasks").items():
        for name in names:
            if not TASK_NAME.fullmatch(name):
                msg = (
                    f"{clean(name)!r} is not the name of an lm_eval task, whose files may name code"
                )
                settings.refuse(setting, f"{msg}; write letters, digits, _ and - alone")
    for name, group in settings.document.get("backend", {}).items():
        if name != DEFAULT and any(value is True for value in group.values()):
            settings.refuse(
                f"backend.{name}",
                f"etprof measures {DEFAULT} and ExecuTorch's own kernels; leave it out",
            )
    metadata = settings.get("base.metadata")
    if metadata is not None:
        try:
            is_object = isinstance(parse_json(metadata), dict)
        except ValueError:
            is_object = False
        if not is_object:
            settings.refuse("base.metadata", "must be the text of a JSON object")


def _find(settings: LlmSettings, setting: str, text: str) -> Path:
    """Returns the file's absolute path; relative ones are beside the YAML, or else here."""
    location = expand_home(text)
    existing = next(
        (path for folder in (settings.path.parent, Path()) if (path := folder / location).exists()),
        None,
    )
    if existing is None:
        settings.refuse(
            setting, f"{clean(str(location))} does not exist; give the path of the file"
        )
    try:
        check_regular(existing)
    except OSError as error:
        settings.refuse(setting, f"{clean(str(location))}: {error.strerror}; give a file")
    return existing.absolute()


def _find_library(settings: LlmSettings, named: Path | None) -> dict[str, Path]:
    """Returns the library that the command line names; raises UsageError for any other."""
    path = None
    if named is not None:
        if not named.is_file():
            raise UsageError(f"--so-library {named} is not a file; give the path of the library")
        path = named.absolute()
    for setting, text in settings.of_kind("library").items():
        library = _find(settings, setting, text)
        if path is None or not path.samefile(library):
            msg = f"{clean(text)} is a native library that ExecuTorch would load, so its code would run"
            settings.refuse(
                setting,
                f"{msg}; leave it out, or name it yourself: --so-library {clean(str(library))}",
            )
    return {} if path is None else {_LIBRARY: path}


def _check_params(path: Path) -> None:
    """Raises UsageError for fields that ExecuTorch's networks do not have."""
    way_out = "give the network's sizes as a JSON object"
    params = read_json(path, way_out=way_out, most_bytes=_MOST_BYTES, error=UsageError)
    if not isinstance(params, dict):
        raise UsageError(f"{path} (base.params) is no JSON object; {way_out}")
    field_names = _fields_of_networks()
    for name in params:
        if name in _GIVEN_TWICE:
            raise UsageError(
                f"{path} (base.params): {name} is set by {_GIVEN_TWICE[name]}; leave it out"
            )
        if field_names and name not in field_names:
            msg = f"{path} (base.params): {clean(name)} is not a parameter of ExecuTorch's networks"
            raise UsageError(f"{msg}{suggest(name, field_names) or '; leave it out'}")


def _find_weights(settings: LlmSettings, model_class: str, *, download: bool) -> str:
    if settings.get("base.checkpoint"):
        if download:
            settings.refuse("base.checkpoint", "is given, so --download has nothing to fetch")
        return "checkpoint"
    if download and model_class not in _literal("export_llama_lib.py", "HUGGING_FACE_REPO_IDS"):
        settings.refuse("base.model_class", f"ExecuTorch downloads no weights of {model_class}")
    return "downloaded" if download else "random"


def _precision(settings: LlmSettings) -> str:
    scheme = settings.get("quantization.pt2e_quantize") or settings.get("quantization.qmode")
    dtype, size = settings.get("model.dtype_override"), settings.get("quantization.group_size")
    if scheme is None:
        return str(dtype)
    labels = [scheme, *([f"g{size}"] if size else []), *([dtype] if dtype != "fp32" else [])]
    return "_".join(labels)


def _tree(module: str) -> ast.Module:
    """Returns a module of ExecuTorch's examples as a syntax tree: importing it loads PyTorch."""
    package_spec = importlib.util.find_spec("executorch")
    folders = (package_spec.submodule_search_locations or ()) if package_spec else ()
    files = (Path(folder) / _EXAMPLES / module for folder in folders)
    file = next((path for path in files if path.is_file()), None)
    way_out = "install ExecuTorch again"
    return ast.parse(
        b"" if file is None else read_input(file, most_bytes=_MOST_BYTES, way_out=way_out)
    )


def _literal(module: str, name: str) -> tuple[str, ...]:
    """Returns the texts of a list, or a table's keys, that a module declares; none where it is not."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return tuple(ast.literal_eval(node.value))
    return ()


def _fields_of_networks() -> frozenset[str]:
    def names() -> Iterator[str]:
        for node in ast.walk(_tree("model_args.py")):
            if isinstance(node, ast.ClassDef) and node.name == "ModelArgs":
                yield from (
                    ast.unparse(statement.target)
                    for statement in node.body
                    if isinstance(statement, ast.AnnAssign)
                )

    return frozenset(names())
