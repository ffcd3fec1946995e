"""Show Android devices, and put their settings into a known state for measuring.

  etprof device list                       attached devices and their state
  etprof device describe                   model, SoC, cores, heat, battery, profile in force
  etprof device prepare --profile boost    save the settings, then apply a profile
  etprof device verify                     name every setting that is not as the profile wants it
  etprof device restore                    put the saved settings back
  etprof device clean                      remove etprof's files from the device

Profiles: boost keeps the device awake on any charger and switches low-power mode and animations
off; app keeps it awake on mains power only and animations on, as an app's users have it. Neither
lifts a frequency cap nor chooses a governor: `etprof docs android` says what that means.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from etprof.base.errors import TargetError, UsageError
from etprof.cli.flags import FULL, JSON, NO_WAIT, add_flags
from etprof.cli.measuring import patience_of
from etprof.cli.output import answer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from etprof.targets.android.adb import Adb

_CHANGING = ("prepare", "restore", "clean")
"""Actions that would spoil what is being measured on the device."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    from etprof.targets.android.profiles import PROFILES

    add_flags(
        parser,
        ("action", ("list", *_ACTIONS), "", "what to do"),
        ("--serial", str, "SERIAL", "which device, if several are attached"),
        ("--connect", str, "HOST:PORT", "a device on the network"),
        ("--profile", tuple(PROFILES), "", "with verify: default is what was prepared last"),
        ("--remote-folder", str, "DIR", "with clean: the config's `remote_folder`"),
        NO_WAIT,
        FULL,
        JSON,
    )


def run(arguments: argparse.Namespace) -> int:
    """Does what was asked."""
    from etprof.targets.android.adb import choose_device, connect, lockable_device
    from etprof.targets.device_lock import device_lock

    serial = connect(arguments.connect) if arguments.connect else arguments.serial
    if arguments.action == "list":
        return _list_devices(arguments)
    adb = choose_device(serial)
    act = _ACTIONS[arguments.action]
    if arguments.action not in _CHANGING:
        return act(adb, arguments)
    with device_lock(lockable_device(adb), patience_of(arguments)):
        return act(adb, arguments)


def _list_devices(arguments: argparse.Namespace) -> int:
    from etprof.tables.brief import listed
    from etprof.tables.machine import DEVICES
    from etprof.targets.android.adb import list_devices

    table = DEVICES.of(list_devices())
    brief = listed(table, missing="no device is attached")
    answer(arguments, {"devices": table.records()}, brief)
    return 0


def _describe(adb: Adb, arguments: argparse.Namespace) -> int:
    from etprof.tables.brief import listed
    from etprof.tables.machine import FACTS
    from etprof.tables.verdicts import flatten
    from etprof.targets.android.identity import describe_device, read_device_state

    document = {**describe_device(adb), "state": dataclasses.asdict(read_device_state(adb))}
    facts = (fact for name, value in document.items() for fact in flatten(name, value))
    answer(arguments, document, listed(FACTS.of(facts)))
    return 0


def _prepare(adb: Adb, arguments: argparse.Namespace) -> int:
    from etprof.tables.brief import listed
    from etprof.targets.android.profiles import PROFILES, prepare

    if arguments.profile is None:
        raise UsageError(f"prepare needs --profile: {' or '.join(PROFILES)}")
    saved_in = prepare(adb, arguments.profile)
    document = {"serial": adb.serial, "profile": arguments.profile, "saved_in": str(saved_in)}
    lines = (
        (
            f"Profile {arguments.profile} is in force on {adb.serial}; frequency caps and "
            "governor are as they were."
        ),
        f"The settings from before are in {saved_in}; `etprof device restore` puts them back.",
    )
    answer(arguments, document, listed(None, lines=lines))
    return 0


def _verify(adb: Adb, arguments: argparse.Namespace) -> int:
    from etprof.tables.brief import AnswerLine, Brief
    from etprof.tables.machine import DIFFERENCES
    from etprof.targets.android import profiles

    saved = profiles.load_saved(profiles.saved_path(adb))
    profile = arguments.profile or (saved.profile if saved else None)
    if profile not in profiles.PROFILES:
        raise UsageError(
            f"device {adb.serial} was not prepared here; name what to verify with --profile"
        )
    settings = profiles.read_settings(adb)
    differences = profiles.compare_settings(settings, profile)
    power = profiles.power_lines(adb)
    table = DIFFERENCES.of(differences)
    document = {
        "serial": adb.serial,
        "profile": profile,
        "differences": table.records(),
        "settings": settings,
        "power": power,
    }
    verdict = "is not in force" if differences else "is in force"
    headline = AnswerLine(
        f"Profile {profile} {verdict} on {adb.serial}", "red" if differences else "green"
    )
    lines = tuple(f"power: {line}" for line in power)
    answer(arguments, document, Brief((headline,), table=table, lines=lines))
    return TargetError.exit_code if differences else 0


def _restore(adb: Adb, arguments: argparse.Namespace) -> int:
    from etprof.tables.brief import AnswerLine, Brief
    from etprof.tables.machine import SETTINGS
    from etprof.targets.android.profiles import restore

    settings = restore(adb)
    line = f"The settings of {adb.serial} are as they were before"
    document = {"serial": adb.serial, "settings": settings}
    brief = Brief((AnswerLine(line),), table=SETTINGS.of(settings.items()))
    answer(arguments, document, brief)
    return 0


def _clean(adb: Adb, arguments: argparse.Namespace) -> int:
    from etprof.base.units import format_size
    from etprof.tables.brief import listed
    from etprof.targets.android.store import remove_files
    from etprof.targets.android.target import REMOTE_ROOT

    root = arguments.remote_folder or REMOTE_ROOT
    freed = remove_files(adb, root)
    text = f"Removed etprof's files from {root} of {adb.serial}: {format_size(freed)}"
    document = {"serial": adb.serial, "folder": root, "freed_bytes": freed}
    answer(arguments, document, listed(None, lines=[text]))
    return 0


_ACTIONS: dict[str, Callable[[Adb, argparse.Namespace], int]] = {
    "describe": _describe,
    "prepare": _prepare,
    "verify": _verify,
    "restore": _restore,
    "clean": _clean,
}
