"""Exports one model: from its name to a program and the files beside it."""

from __future__ import annotations

from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etprof._version import __version__
from etprof.backends.executorch_version import require_executorch
from etprof.base.errors import EtprofError, InputFileError
from etprof.base.files import hash_file
from etprof.base.text import command_line
from etprof.export.request import ExportOptions, ExportRequest
from etprof.export.stages import StageClock
from etprof.model_registry import registry
from etprof.model_registry.input_spec import describe_inputs
from etprof.run.program import load_export_manifest, refuse_inaccurate

if TYPE_CHECKING:
    from etprof.export.request import ExportedFiles
    from etprof.export.stages import StageListener
    from etprof.run.program import ExportManifest

_TOOLS = ("executorch", "torch", "torchao")
"""Whose versions decide what an export contains."""


def export_model(request: ExportRequest, listener: StageListener | None = None) -> ExportedFiles:
    """Exports the requested model and returns the paths of its files.

    The request and the model's name are checked before PyTorch is imported. Raises UsageError for
    a request that cannot be met, ExportError when the model cannot be turned into a program, and
    OutputError when the files cannot be written; then no file of this export is left. Raises
    ExportError for a program whose outputs are wrong too, unless that is allowed: its files stay.
    """
    clock = StageClock(listener, is_tracing=request.options.trace)
    files = request.files()
    registry.find_model(request.model)
    require_executorch("exporting")
    with clock.stage("import ExecuTorch"):
        from etprof.export import session
    session.ExportSession(request, files, clock).run()
    if not request.allow_inaccurate:
        refuse_inaccurate(files.pte)
    return files


def find_export(request: ExportRequest, *, any_options: bool = False) -> ExportManifest | None:
    """Returns the manifest of the program that `request` would make, if it is there already.

    None where it would be another one: of other code, weights, tools or options; with
    `any_options` it may have been made with other weights and options.
    """
    program = request.files().pte
    manifest = _manifest_of(program)
    if manifest is None or not (any_options or _has_options(request, manifest)):
        return None
    if manifest.options.get("example_inputs", []) != describe_inputs(
        request.options.example_inputs
    ):
        return None
    source, made_of = registry.find_model(request.model), manifest.source
    code = source.hash_files()
    is_same = manifest.pte is None or manifest.pte.sha256 == hash_file(program)
    # The hash is that of all files beside the model's, so two of them have it in common.
    is_file = Path(made_of.origin).name == Path(source.origin).name
    is_current = is_same and is_file and code is not None and made_of.sha256 == code
    return manifest if is_current and _is_of_these_tools(manifest) else None


def describe_replaced(request: ExportRequest) -> str:
    """Says which inputs the program had that an export of `request` replaces, where its are others.

    Empty where there is no such program.
    """
    program = request.files().pte
    manifest = _manifest_of(program)
    asked = tuple(request.options.example_inputs)
    if manifest is None or manifest.example_inputs == asked:
        return ""
    flags = [word for text in manifest.example_inputs for word in ("--input", text)]
    inputs = command_line(*flags).removeprefix("etprof ") if flags else "the model's own inputs"
    return f"replaced {program}, exported with {inputs}; `etprof export --out FILE` keeps both"


def _manifest_of(program: Path) -> ExportManifest | None:
    """Returns what the export says of a program; None where that is gone or damaged."""
    try:
        return load_export_manifest(program) if program.is_file() else None
    except EtprofError:
        # It is damaged, so nobody knows what the program is.
        return None


def _is_of_these_tools(manifest: ExportManifest) -> bool:
    """Whether the same versions would export; those of wheels for other CPUs are the same."""
    now = {"etprof": __version__}
    for tool in _TOOLS:
        try:
            now[tool] = version(tool)
        except PackageNotFoundError:
            # Then nothing can be exported, and an earlier program is as good as it gets.
            continue
    before = manifest.versions
    return all(
        before.get(name, "").partition("+")[0] == text.partition("+")[0]
        for name, text in now.items()
    )


def _has_options(request: ExportRequest, manifest: ExportManifest) -> bool:
    requested, weights = request.options.document(), request.options.weights
    exported = {**manifest.options, "weights": None}
    before = manifest.options.get("weights")
    weights_sha256 = before.get("sha256") if isinstance(before, dict) else None
    return exported == requested and weights_sha256 == (hash_file(weights) if weights else None)


def repeat_request(program: Path, weights: Path | None = None) -> ExportRequest:
    """Returns the request that the export manifest beside `program` describes.

    Raises InputFileError where nothing says which model it came from, or where that has changed.
    """
    manifest = load_export_manifest(program)
    if manifest is None:
        raise InputFileError(
            f"{program} says what is computed, not what it came from, and {program.name}.json is not "
            "beside it; name the model instead, such as `etprof numerics path/to/file.py:Net`"
        )
    if "llm" in manifest.options:
        raise InputFileError(
            f"{program} is ExecuTorch's own export of a language model, of which etprof has no "
            "model to run; name one of yours instead, such as path/to/file.py:Class"
        )
    made_of = manifest.source
    model = manifest.asked_as
    if registry.find_model(model).hash_files() != made_of.sha256:
        raise InputFileError(
            f"{program} was exported from other code than {made_of.origin} is now; export it again"
        )
    identity = manifest.options.get("weights")
    if isinstance(identity, dict) and (weights is None or hash_file(weights) != identity["sha256"]):
        raise InputFileError(
            f"{program} was exported with the weights of {identity.get('path')}; give the same file "
            "with --weights"
        )
    texts = manifest.example_inputs
    if describe_inputs(texts) != manifest.options.get("example_inputs", []):
        raise InputFileError(
            f"{program} was exported with inputs of files that have changed; export it again"
        )
    option_names = {option.name for option in fields(ExportOptions)} - {"example_inputs"}
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in manifest.options.items()
        if name in option_names
    }
    return ExportRequest(
        model=model,
        precision=manifest.precision,
        backend=manifest.backend,
        options=ExportOptions(**{**options, "weights": weights, "example_inputs": texts}),
    )
