"""One ETDump without a run: its clock, and what an ETRecord knows of its operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.backends.portable import parse_kernel_name
from etprof.backends.registry import backend_of_labels
from etprof.base.errors import InputFileError, UsageError
from etprof.base.text import command_line
from etprof.etdump.plausibility import CONTAINERS, KERNEL_PREFIX
from etprof.importing.clock import Clock, find_clock
from etprof.run.load import Run, find_own_run
from etprof.run.program import LoadedProgram

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.etdump.reader import ETDump, LongETDump
    from etprof.run.delegation import DelegationReport, MethodReport

Describe = Callable[[Mapping[int, str]], "DelegationReport"]
"""Reads an ETRecord; given are the delegate calls that ran: their instructions and backends."""
_DELEGATE_CALL: Final = CONTAINERS[1]
_UNKNOWN_BACKEND: Final = "unknown"
_OWN_CLOCK: Final = Clock(1.0, "ns, as the runner of the run that it stands in counts")
_LEAST_ALIKE: Final = 0.5
"""Of the kernels that an ETRecord names; what an operator was decomposed into has other names."""


@dataclass(frozen=True, kw_only=True)
class ClockOptions:
    """What the user says of an ETDump."""

    time_scale: str | None = None
    clock_hz: float | None = None
    etrecord: Path | None = None
    describe: Describe | None = None
    """Reads `etrecord`, by method."""
    method: str | None = None
    """Of `etrecord`, the one that ran."""


def load_bare_etdump(etdump: Path, options: ClockOptions) -> Run:
    """Reads one ETDump as a run without a directory, in ns.

    Raises UsageError where nothing says what its clock counts, and InputFileError for an ETRecord
    that is not of the program that ran.
    """
    run = Run.load(etdump)
    (experiment,) = run.experiments
    (split,) = experiment.splits
    clock = _find_clock(run, split.dump, options)
    split = replace(split, dump=replace(split.dump, ns_per_tick=clock.ns_per_tick))
    program, notes = LoadedProgram(), [f"clock of the ETDump: {clock.text}"]
    if options.etrecord is not None and options.describe is not None:
        kernels, calls = _executed_calls(split.dump)
        report = options.describe(calls)
        name, method = _choose_method(kernels, calls, report, etdump, options)
        program = LoadedProgram(report=method)
        notes.append(f"modules and source lines: of {options.etrecord.name}, method {name}")
    experiment = replace(experiment, splits=(split,), program=program)
    return replace(run, experiments=(experiment,), programs=(program,), notes=tuple(notes))


def load_source(source: Path, *, with_reference: bool = False) -> Run:
    """Reads a run directory, or an ETDump whose clock is known without a word of the user's.

    Raises UsageError for another ETDump: an import says once for all what its clock counts.
    """
    if source.is_dir() or not source.exists():
        return Run.load(source, with_reference=with_reference)
    try:
        return load_bare_etdump(source, ClockOptions())
    except UsageError as error:
        command = command_line("import", source, "--time-scale", "ns")
        problem = str(error).partition(";")[0]
        raise UsageError(
            f"{source}: {problem}; make a run of it that says so, with `{command}` for a phone's or "
            "a computer's, or `--time-scale cycles --clock-hz HZ` for a microcontroller's"
        ) from None


def _find_clock(run: Run, dump: ETDump | LongETDump, options: ClockOptions) -> Clock:
    """Returns the clock that a flag, the run around the ETDump, or the ETDump itself says."""
    manifest = find_own_run(run.source)
    if manifest is None or options.time_scale is not None or options.clock_hz is not None:
        return find_clock(dump, options.time_scale, options.clock_hz, None)
    imported = manifest.imported
    if imported is None or imported.ns_per_tick is None:
        return _OWN_CLOCK
    return Clock(imported.ns_per_tick, imported.clock or "as its run says")


def _choose_method(
    kernels: Mapping[int, str],
    calls: Mapping[int, str],
    report: DelegationReport,
    etdump: Path,
    options: ClockOptions,
) -> tuple[str, MethodReport]:
    """Returns the one method whose instructions are those that ran; raises InputFileError."""
    etrecord, requested = options.etrecord, options.method
    if requested is not None and requested not in report.methods:
        method_names = ", ".join(report.methods)
        raise UsageError(f"--method {requested}: {etrecord} has {method_names or 'no method'}")
    methods = report.methods if requested is None else {requested: report.methods[requested]}
    reasons = {name: _find_mismatch(kernels, calls, method) for name, method in methods.items()}
    fitting = [name for name, reason in reasons.items() if reason is None]
    if len(fitting) == 1:
        return fitting[0], report.methods[fitting[0]]
    if fitting:
        names = ", ".join(fitting)
        raise UsageError(
            f"the operators of {etdump} could be of several methods of {etrecord} ({names}); "
            "say with --method NAME which of them ran"
        )
    mismatches = "; ".join(f"{name}: {reason}" for name, reason in [*reasons.items()][:4])
    raise InputFileError(
        f"{etrecord} does not belong to {etdump} ({mismatches or 'it has no method'}); give --etrecord "
        "the file that was written with the program which ran, or leave it out"
    )


def _executed_calls(dump: ETDump | LongETDump) -> tuple[dict[int, str], dict[int, str]]:
    """Returns the kernels and the delegates' backends, by the instructions that called them."""
    kernels, calls, labels = dict[int, str](), set[int](), set[str]()
    for piece in dump.pieces():
        events = piece.profile
        pairs = np.stack([events.instruction_id, events.name_id], axis=1)
        for instruction, name in np.unique(pairs, axis=0).tolist():
            label = piece.names[name] if 0 <= name < len(piece.names) else ""
            if instruction >= 0 and label == _DELEGATE_CALL:
                calls.add(instruction)
            elif instruction >= 0 and label.startswith(KERNEL_PREFIX):
                kernels.setdefault(instruction, parse_kernel_name(label).base)
        used = np.unique(events.delegate_debug_id_str_id).tolist()
        labels |= {piece.names[string_id] for string_id in used if string_id >= 0}
    backend = backend_of_labels(labels).delegate or _UNKNOWN_BACKEND
    return kernels, dict.fromkeys(sorted(calls), backend)


def _find_mismatch(
    kernels: Mapping[int, str], calls: Mapping[int, str], method: MethodReport
) -> str | None:
    """Says why what ran is not of this method; None where it can be."""
    kernel_of = {
        operator.instruction: parse_kernel_name(operator.operator).base
        for operator in method.operators
        if operator.instruction is not None
    }
    delegates = {
        delegate.instruction for delegate in method.delegates if delegate.instruction is not None
    }
    if wrong := sorted(calls.keys() ^ delegates):
        where = "there" if wrong[0] in delegates else "in the ETDump"
        return f"instruction {wrong[0]} calls a delegate only {where}"
    if wrong := sorted(kernels.keys() - kernel_of.keys()):
        return f"it has no operator at instruction {wrong[0]}, which ran {kernels[wrong[0]]}"
    alike = sum(kernel_of[instruction] == name for instruction, name in kernels.items())
    if alike < _LEAST_ALIKE * len(kernels):
        return f"{alike} of {len(kernels)} kernels have the names that it says"
    return None
