"""From a checked YAML to a program and the files beside it, by ExecuTorch's own export.

ExecuTorch works as a process in a folder of its own, so what it leaves behind goes with that. Its
files appear all together, or not at all; its log stays in either case.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from etprof.backends.executorch_version import require_executorch
from etprof.base.atomic import staged_folder, write_json, write_text
from etprof.base.errors import ExportError, InputFileError, first_line
from etprof.base.files import open_regular
from etprof.base.json_input import parse_json
from etprof.base.process import Completed, ProgramTimeoutError, run_command
from etprof.base.text import clean
from etprof.export.stages import StageClock
from etprof.run.manifest import identify
from etprof.run.program import ExportManifest, MethodFiles, ModelCode

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.export.request import ExportedFiles
    from etprof.export.stages import StageListener
    from etprof.export_llm.planning import LlmPlan
    from etprof.run.delegation import DelegationReport

TOKENIZER_METHOD: Final = "get_tokenizer_sha256"
"""Constant method of a program that says which tokenizer it was exported with."""
LLAMA_WAY_OUT: Final = (
    "which the installed runners lack; `cmake --workflow --preset host-source` builds one that has "
    "them for x86-64 Linux, linux-aarch64-source-sme2 for Arm Linux and the emulator, android-sme2 for "
    "phones, macos-sme2 for Macs: name it with `etprof profile --runner`"
)
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
_LOG_TAIL: Final = 2**16
_ERROR: Final = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b")
_PICKLE: Final = "Weights only load failed"
_GLOBAL: Final = re.compile(r"GLOBAL (\S+)")
_WAYS_OUT: Final = (
    (
        _PICKLE,
        "base.checkpoint, or an adapter_checkpoint, holds more than tensors; save its state dict alone",
    ),
    ("ModuleNotFoundError", "install what it names"),
    ("missing the following weights", "base.checkpoint is of another network than base.params"),
    ("size mismatch", "base.checkpoint is of another network than base.params"),
    ("Error(s) in loading state_dict", "base.checkpoint is of another network than base.params"),
    ("offline", "give base.checkpoint, or let ExecuTorch fetch it with --download"),
    ("MemoryError", "export on a machine with more memory"),
)


def export_llm(plan: LlmPlan, listener: StageListener | None = None) -> ExportedFiles:
    """Exports and returns the paths of the files.

    Raises ExportError with the last of what ExecuTorch said when it fails or takes too long, and
    OutputError when the files cannot be written.
    """
    require_executorch("exporting a language model")
    clock, files = StageClock(listener), plan.files
    with staged_folder(files.pte.parent, last=files.manifest.name, family=files.every()) as folder:
        with clock.stage("export_llm of ExecuTorch"):
            # Absolute: the process works in a folder of its own.
            _run_upstream(plan, folder.absolute())
        _Description(plan, folder, clock).write()
    return files


def _run_upstream(plan: LlmPlan, folder: Path) -> None:
    """Leaves the program, its ETRecord and the log in `folder`."""
    files, work = plan.files, folder / "work"
    work.mkdir()
    config, log = work / "config.yaml", folder / files.log.name
    # JSON is YAML too.
    write_text(config, json.dumps(_config(plan, work)))
    command: list[str | Path] = [sys.executable, "-P", "-m", "etprof.export_llm.child", config]
    if plan.weights == "random":
        command += [plan.paths["base.params"], work / "weights.pth"]
    # To a file, not a pipe: it is read while the export runs, and stays when that is stopped.
    shell: list[str | Path] = ["/bin/sh", "-c", 'log=$1; shift; exec "$@" >"$log" 2>&1', "sh", log]
    try:
        try:
            done = run_command(
                [*shell, *command],
                timeout_s=plan.request.timeout_s,
                environment={} if plan.request.download else _OFFLINE,
                folder=work,
            )
        finally:
            _keep_log(log, files.log)
    except ProgramTimeoutError as error:
        msg = (
            f"ExecuTorch's export of {plan.request.config} did not end within "
            f"{plan.request.timeout_s:g} s and was stopped; give it more with --timeout; what it "
            f"said is in {files.log}"
        )
        raise ExportError(msg) from error
    program = work / "model.pte"
    if done.exit_code != 0 or not program.is_file():
        raise ExportError(_failure(plan, done, log))
    program.rename(folder / files.pte.name)
    record = work / "etrecord.bin"
    if record.is_file():
        record.rename(folder / files.etrecord.name)
    shutil.rmtree(work)


def _keep_log(log: Path, target: Path) -> None:
    with suppress(OSError):
        shutil.copyfile(log, target)


def _config(plan: LlmPlan, work: Path) -> dict[str, Any]:
    """Returns the YAML for ExecuTorch: absolute paths, and what etprof adds."""
    document: dict[str, Any] = plan.settings.resolved(plan.paths)
    base = document.setdefault("base", {})
    if plan.weights == "random":
        base["checkpoint"] = str(work / "weights.pth")
    if "base.tokenizer_path" in plan.identities:
        metadata = parse_json(base.get("metadata") or "{}")
        metadata[TOKENIZER_METHOD] = plan.identities["base.tokenizer_path"].sha256
        base["metadata"] = json.dumps(metadata)
    document["export"] = {**document.get("export", {}), "output_name": str(work / "model.pte")}
    if "export.so_library" in plan.paths:
        document["export"]["so_library"] = str(plan.paths["export.so_library"])
    document["debug"] = {**document.get("debug", {}), "generate_etrecord": plan.has_record}
    return document


def _failure(plan: LlmPlan, done: Completed, log: Path) -> str:
    """Returns how ExecuTorch ended, its last words, and the way out."""
    lines = _last_lines(log)
    message = next((line for line in reversed(lines) if _ERROR.match(line)), None)
    message = message or next(reversed(lines), None) or done.stderr.strip() or "it said nothing"
    outcome = (
        f"was ended by signal {-done.exit_code}" if done.exit_code < 0
        else f"failed with exit code {done.exit_code}" if done.exit_code
        else "ended without a program"
    )  # fmt: skip
    if _PICKLE in message:
        # ExecuTorch's reader goes on to advise loading it all the same, which would run it.
        named = next((match[1] for line in lines if (match := _GLOBAL.search(line))), "unknown")
        message = f"{_PICKLE}, for the file's pickle names {named}"
    way_out = next((out for pattern, out in _WAYS_OUT if pattern in message), None)
    if way_out is None and done.exit_code == -9:
        way_out = "the system may have lacked memory: export a smaller one, or on another machine"
    way_out = way_out or "change the setting that it speaks of"
    return (
        f"ExecuTorch's export of {plan.request.config} {outcome}: {clean(message, 500)}; {way_out}; "
        f"all that it said is in {plan.files.log}"
    )


def _last_lines(log: Path) -> list[str]:
    with suppress(OSError), open_regular(log) as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_TAIL))
        text = stream.read().decode("utf-8", "replace")
        return [line.strip() for line in text.splitlines() if line.strip()]
    return []


class _Description:
    """Writes what etprof's own export writes beside a program, as far as it can be known."""

    def __init__(self, plan: LlmPlan, folder: Path, clock: StageClock) -> None:
        self._plan, self._folder, self._clock = plan, folder, clock
        self._log: list[str] = []

    def write(self) -> None:
        """Writes delegation report and export manifest."""
        with self._clock.stage("import ExecuTorch"):
            from etprof.etrecord import program
            from etprof.export.session import tool_versions
        files, pte = self._plan.files, self._staged(self._plan.files.pte)
        with self._clock.stage("describe"):
            content = program.decode_program(pte)
            methods, constants = _split_methods(content)
            report = self._describe(content)
        if report is not None:
            write_json(self._staged(files.report), report.model_dump(mode="json"))
        missing = _llama_operators(content)
        if missing:
            self._log.append(f"it needs {', '.join(missing)}, {LLAMA_WAY_OUT}")
        has_record = self._staged(files.etrecord).is_file()
        manifest = ExportManifest(
            model=self._plan.name,
            backend=self._plan.backend,
            precision=self._plan.precision,
            source=ModelCode(
                origin=str(self._plan.request.config),
                sha256=self._plan.identities["config"].sha256,
            ),
            versions=tool_versions(),
            options={"llm": {**self._plan.record(), "constants": constants}},
            stages=tuple(self._clock.times),
            pte=identify(pte, files.pte.name),
            etrecord=identify(self._staged(files.etrecord), files.etrecord.name)
            if has_record
            else None,
            log=tuple(map(clean, self._log)),
            method="forward" if "forward" in methods else methods[0],
            methods={name: MethodFiles() for name in methods},
        )
        write_json(self._staged(files.manifest), manifest.model_dump(mode="json"))

    def _staged(self, file: Path) -> Path:
        return self._folder / file.name

    def _describe(self, content: Any) -> DelegationReport | None:  # noqa: ANN401 - ExecuTorch's own
        """Returns what is delegated; None, with the reason, where the ETRecord does not say it."""
        from etprof.etrecord.program import describe_program

        record = self._staged(self._plan.files.etrecord)
        if not record.is_file():
            self._log.append("no delegation report: debug.generate_etrecord is false")
            return None
        try:
            report = describe_program(self._staged(self._plan.files.pte), record, content)
        except InputFileError as error:
            self._log.append(f"no delegation report: {first_line(error)}")
            return None
        named = {"model": self._plan.name, "backend": self._plan.backend}
        return report.model_copy(update={**named, "precision": self._plan.precision})


def _split_methods(content: Any) -> tuple[list[str], dict[str, Any]]:  # noqa: ANN401
    """Returns the methods that compute, and what the others tell."""
    plans = content.program.execution_plan
    computing = [plan.name for plan in plans if plan.chains[0].instructions]
    constants = {
        clean(plan.name): [_value(plan.values[index].val) for index in plan.outputs]
        for plan in plans
        if plan.name not in computing
    }
    return computing, {k: v[0] if len(v) == 1 else v for k, v in constants.items()}


def _value(value: Any) -> Any:  # noqa: ANN401 - ExecuTorch's own
    """Returns a number or a text that a constant method gives; None for other values."""
    names = ("int_val", "bool_val", "double_val", "string_val")
    return next((getattr(value, name) for name in names if hasattr(value, name)), None)


def _llama_operators(content: Any) -> list[str]:  # noqa: ANN401
    names = {o.name for plan in content.program.execution_plan for o in plan.operators}
    return sorted(clean(name) for name in names if name.startswith("llama::"))
