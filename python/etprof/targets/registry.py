"""The kinds of targets, one row each: everything that differs by kind is asked here.

A new kind is a module with its class, a row, and a template in configs/templates.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from etprof.base.errors import UsageError
from etprof.targets.policy import Policy

if TYPE_CHECKING:
    from etprof.run.runner_result import Cpu
    from etprof.targets import Target
    from etprof.targets.policy import RequiredPart

LOCAL: Final = "local"
"""Stands for the kind that this machine is."""


_PASSING_SERIAL: Final = re.compile(r".*:\d+|emulator-\d+")
"""Serials that say how a device is connected now, not which it is."""
Facts = Mapping[str, object]
"""What a target says of itself (`Target.describe`), as manifests keep it."""


def _identify_computer(target: Facts, cpu: Cpu | None) -> tuple[str, str | None]:
    """A computer is its CPU, cores and system, which two computers may share."""
    # The maker of a CPU may pad its name with spaces.
    model = " ".join((cpu.model_name or cpu.architecture).split()) if cpu else None
    model = model or _join(target, "machine")
    cores = cpu.logical_cores if cpu else target.get("logical_cores")
    facts = (model, f"{cores} cores" if cores else None, _join(target, "system"))
    return ", ".join(fact for fact in facts if fact), model


def _identify_phone(target: Facts, _: Cpu | None) -> tuple[str, str | None]:
    """A phone is its make, model and serial."""
    serial = str(target.get("serial") or "")
    model_name = _join(target, "manufacturer", "model") or "Android device"
    is_lasting = serial and not _PASSING_SERIAL.fullmatch(serial)
    soc = _join(target, "soc_manufacturer", "soc_model")
    return f"{model_name} ({serial})" if is_lasting else model_name, soc


def _identify_emulator(target: Facts, _: Cpu | None) -> tuple[str, str | None]:
    return _join(target, "emulator", "emulated_cpu") or "emulator", None


def _join(target: Facts, *keys: str) -> str | None:
    return " ".join(str(target[key]) for key in keys if target.get(key)) or None


@dataclass(frozen=True, kw_only=True)
class TargetKind:
    """One row: what a kind is called, what it proves, and what it takes."""

    name: str
    """The word of configs and `--target`; its runs have it as `platform`, and as their folder."""
    policy: Policy
    factory: str
    """`module:Class`, imported when a target is made."""
    takes: Mapping[str, str] = field(default_factory=dict)
    """Fields of a config's `target` that mean something here: the parameters of the class."""
    required_parts: str | None = None
    """`module:function` that says which parts it needs are there, for `etprof doctor`."""
    checklist: str | None = None
    """`module:function` that walks all that a first measurement needs, for `doctor --target`."""
    history_name: str
    """Its word in the history."""
    identify: Callable[[Facts, Cpu | None], tuple[str, str | None]] = _identify_computer
    """Names a device so that its runs come together, and its SoC."""
    is_this_host: bool = True
    """Whether it computes on the CPU of the host that etprof runs on."""
    counting_hint: str
    """How to get microkernel calls counted, where no available runner does."""
    runner_hint: str = "leave it out: the target has its own"
    """What helps where a runner that was named is not there."""
    reports_sme_modes: bool = True
    """Whether its CPU says which SME modes it has, so that `auto` stands where it has none."""
    has_vector_lengths: bool = False
    """Whether an experiment may choose the streaming vector length of its CPU."""
    warning: str | None = None
    """What a reader must know before believing a number."""

    def make(self, fields: Mapping[str, object]) -> Target:
        """Returns a target; `fields` are those of a config's `target`, others are passed by."""
        arguments = {
            name: fields[key] for key, name in self.takes.items() if fields.get(key) is not None
        }
        return cast("Target", load(self.factory)(**arguments))


_TRACING: Final = {"trace_runner": "trace_runner", "trace_preset": "trace_runner"}
_DEBUGGING: Final = {"debugger": "debugger"}
_HARDWARE: Final = Policy(proves_times=True)

TARGETS: Final = (
    TargetKind(
        name="linux",
        policy=_HARDWARE,
        factory="etprof.targets.local:LocalTarget",
        takes={**_TRACING, **_DEBUGGING},
        history_name="local",
        counting_hint="install etprof again with `pip install .`, or name a runner with "
        "--trace-runner or target.trace_runner",
    ),
    TargetKind(
        name="android",
        policy=_HARDWARE,
        factory="etprof.targets.android.target:AndroidTarget",
        takes={
            "serial": "serial",
            "connect": "address",
            "remote_folder": "root",
            "reconnect_s": "reconnect_s",
            "runner": "runner",
            **_TRACING,
        },
        required_parts="etprof.targets.android.adb:find_parts",
        checklist="etprof.targets.android.checklist:walk",
        history_name="android",
        identify=_identify_phone,
        counting_hint="name a runner with --trace-runner or target.trace_runner; "
        "`cmake --workflow --preset android-sme2-trace` builds one",
        runner_hint="`cmake --workflow --preset android-sme2` builds one, android-sme2-trace "
        "one that counts microkernels",
        reports_sme_modes=False,
        is_this_host=False,
    ),
    TargetKind(
        name="mac",
        policy=_HARDWARE,
        factory="etprof.targets.local:LocalTarget",
        takes=_DEBUGGING,
        history_name="macos",
        counting_hint="name Xcode's debugger with --debugger lldb or target.debugger, or run the "
        "same program with `etprof profile MODEL --target emulator`",
        warning=(
            "Measured on macOS: a Mac's cores, memory and scheduling are not a phone's. Read it "
            "for the shape of the result, not for its figures. Operators outside delegates may use "
            "Apple's own matrix units in every mode."
        ),
    ),
    TargetKind(
        name="emulator",
        policy=Policy(proves_times=False, proves_instructions=True),
        factory="etprof.targets.emulator.target:EmulatorTarget",
        takes={**_TRACING, **_DEBUGGING},
        required_parts="etprof.targets.emulator.installation:find_parts",
        history_name="emulator",
        identify=_identify_emulator,
        counting_hint="run `etprof emulator setup`",
        has_vector_lengths=True,
        warning=(
            "Measured under emulation: which microkernels ran, how often, and what they computed "
            "is exact; times mean nothing and are not shown."
        ),
    ),
)
KINDS: Final = (LOCAL, *(target.name for target in TARGETS))


def find_kind(name: str) -> TargetKind | None:
    """Returns the row of a config's word or a manifest's platform; None for an unknown one."""
    if name == LOCAL:
        name = "mac" if sys.platform == "darwin" else "linux"
    return next((target for target in TARGETS if target.name == name), None)


def kind_of(name: str) -> TargetKind:
    """Returns the row; raises UsageError for an unknown name."""
    kind = find_kind(name)
    if kind is None:
        raise UsageError(f"there is no target {name!r}; known: {', '.join(KINDS)}")
    return kind


def proves_times(platform: str | None) -> bool:
    """Whether times of a run on `platform` mean anything; an unknown one is taken at its word."""
    kind = find_kind(platform or "")
    return kind is None or kind.policy.proves_times


def identify_device(platform: str, target: Facts, cpu: Cpu | None) -> tuple[str, str, str | None]:
    """Returns the kind of a device in the history, a name that brings its runs together, its SoC.

    Runs of unlike computers that are told alike are told apart by their owner's names only.
    """
    kind = find_kind(platform) or kind_of("linux")
    name, soc = kind.identify(target, cpu)
    return kind.history_name, name or platform, soc


def make_target(name: str, fields: Mapping[str, object], where: str) -> Target:
    """Returns a target; raises UsageError, naming `where`, when this machine cannot be it."""
    kind = kind_of(name)
    target = kind.make(fields)
    if target.platform != kind.name:
        raise UsageError(
            f"{where} is {name!r}, but this machine is {target.platform!r}; "
            f"run it there, or give {LOCAL!r}"
        )
    return target


def find_parts() -> list[RequiredPart]:
    """Says of each part that some kind needs beside etprof whether it is there."""
    return [
        replace(required_part, name=f"{kind.name}: {required_part.name}")
        for kind in TARGETS
        if kind.required_parts
        for required_part in load(kind.required_parts)()
    ]


def load(entry_point: str) -> Any:  # noqa: ANN401 - whatever stands there
    """Imports `module:name`."""
    module, _, name = entry_point.partition(":")
    return getattr(importlib.import_module(module), name)
