"""Measure as a config says: experiments in blocks, on a phone, a Mac, Linux or the emulator.

`etprof config init` writes a config to start from. Blocks (process launches) of all experiments
run in random, balanced order without the event tracer; rounds of launches for the per-operator
breakdown are placed among them, and microkernels are counted last. Everything is kept under the
config's output_root, even if the run is interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import UsageError
from etprof.cli.flags import FULL, NO_WAIT, add_flags
from etprof.cli.measuring import listening, report_run
from etprof.cli.output import answer

if TYPE_CHECKING:
    from typing import TypeVar

    from etprof.config import Config, ProgramConfig

    Program = TypeVar("Program", bound=ProgramConfig)

EXAMPLES = """\
examples:
  etprof run config.json
  etprof run config.json --dry-run
  etprof run config.json --resume                 continue a run that was interrupted
  etprof run --from-manifest out_x/runs/linux     repeat a run from its manifest
  etprof run --from-manifest RUN_DIR --dry-run    what a stranger's run would start
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("config", Path, "CONFIG.json", "what to measure", {"nargs": "?"}),
        ("--config", Path, "", argparse.SUPPRESS, {"dest": "config_flag"}),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("common"),
        ("--dry-run", bool, "", "show the plan, measure nothing"),
        ("--resume", bool, "", "continue a run that was interrupted"),
        ("--only", str, "NAME", "measure these experiments only", {"nargs": "+", "default": ()}),
        ("--output-root", Path, "DIR", "output folder, in place of the config's"),
        FULL,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("measuring"),
        ("--keep-going", bool, "", "continue an experiment however often it fails"),
        NO_WAIT,
        ("--analysis-only", bool, "", "measure nothing; analyse what was measured before"),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("repeating a run"),
        ("--from-manifest", Path, "RUN_DIR", "measure again what an earlier run measured"),
        ("--allow-launcher", bool, "",
         "with --from-manifest: start the launcher, runner and arguments that it names"),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("output"),
        ("--json", bool, "", "print the report, or with --dry-run the plan, as JSON"),
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Measures, analyses, reports."""
    from etprof.measuring.configured import describe_config, measure_config
    from etprof.measuring.plan import configured_target

    config, named = _find_config(arguments)
    if arguments.output_root is not None:
        config = config.model_copy(update={"output_root": arguments.output_root})
    if arguments.dry_run:
        return _show_plan(config, arguments)
    if arguments.analysis_only:
        return report_run(config.folder, arguments)
    if arguments.from_manifest is not None:
        _check_starts(config, arguments)
    target = configured_target(config)
    config = _export_models(config)
    with listening(arguments) as listener:
        measured = measure_config(
            config,
            target,
            listener,
            identity={**describe_config(config), **named},
            only=arguments.only,
            resume=arguments.resume,
            keep_going=arguments.keep_going,
        )
    return report_run(config.folder, arguments, measured)


def _find_config(arguments: argparse.Namespace) -> tuple[Config, dict[str, object]]:
    """Returns the config and what the manifest says of its file."""
    from etprof.config import parse_config, read_config_text
    from etprof.run.manifest import load_manifest

    sources = [p for p in (arguments.config, arguments.config_flag, arguments.from_manifest) if p]
    if len(sources) != 1:
        raise UsageError(
            "give one config, as in `etprof run config.json`, or --from-manifest RUN_DIR"
        )
    if arguments.from_manifest is None:
        if arguments.allow_launcher:
            raise UsageError(
                "--allow-launcher is for --from-manifest; a config that you name may start anything"
            )
        text = read_config_text(sources[0], "etprof config init")
    else:
        manifest = load_manifest(sources[0])
        content = ((manifest and manifest.config) or {}).get("content")
        if not isinstance(content, dict):
            raise UsageError(
                f"{sources[0]} has no manifest.json with a config; `etprof run` and `etprof profile` "
                "write one"
            )
        text = json.dumps(content)
    # A manifest's paths are those of the folder in which its run was started.
    folder = sources[0].parent if arguments.from_manifest is None else Path()
    config = parse_config(text, str(sources[0]), folder)
    if arguments.from_manifest is not None and config.models_to_export():
        raise UsageError(
            f"{sources[0]}: its config names {config.models_to_export()[0]}, and a run directory may "
            "be a stranger's: export that model, and put its .pte there"
        )
    return config, {
        "path": str(sources[0]),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def _export_models(config: Config) -> Config:
    """Exports the models that the config names, and returns it with their programs."""
    from etprof.cli.export import export_named

    inaccurate = config.measurement.allow_inaccurate

    def exported(program: Program) -> Program:
        if program.named_model is None:
            return program
        path = export_named(
            program.named_model,
            allow_inaccurate=inaccurate,
            scopes=program.scopes,
            example_inputs=program.example_inputs,
        )
        return program.model_copy(update={"model": path, "scopes": (), "example_inputs": ()})

    programs = {name: exported(program) for name, program in config.programs.items()}
    return exported(config.model_copy(update={"programs": programs} if programs else {}))


def _check_starts(config: Config, arguments: argparse.Namespace) -> None:
    """Says what a manifest would start; raises UsageError for a command that is its own choice."""
    from etprof.cli.progress import say
    from etprof.measuring.starting import describe_starts, find_foreign_fields

    say(f"{arguments.from_manifest} starts:")
    for line in describe_starts(config):
        say(f"  {line}")
    foreign = find_foreign_fields(config)
    if foreign and not arguments.allow_launcher:
        raise UsageError(
            f"{arguments.from_manifest}: {', '.join(foreign)}: not started, a run directory may be "
            "a stranger's; if what is listed above is yours, add --allow-launcher"
        )


def _show_plan(config: Config, arguments: argparse.Namespace) -> int:
    """Prints what would run, in order; no device is asked."""
    from etprof.base.units import count_of, format_duration
    from etprof.measuring.plan import (
        configured_experiments,
        configured_program,
        configured_settings,
        plan,
        planned_target,
    )
    from etprof.measuring.starting import describe_starts, list_starts
    from etprof.tables.brief import AnswerLine, Brief

    settings = configured_settings(config)
    # The program may be on another machine.
    has_references = config.model.is_file() and any(
        description.references for description in configured_program(config).every.values()
    )
    planned = plan(
        configured_experiments(config, arguments.only),
        settings,
        planned_target(config),
        has_references=has_references,
    )
    timed = sum(map(len, planned.timing))
    minimum_s = timed * (settings.min_seconds + settings.cool_down_s)
    launches = [
        {"experiment": launch.experiment.name, "purpose": launch.purpose, "block": launch.block}
        for launch in planned.launches
    ]
    starts = {
        "model": str(config.model),
        "programs": {name: str(program.model) for name, program in config.programs.items()},
        "experiments": list_starts(config),
    }
    headline = f"{count_of(len(launches), 'launch', 'launches')}, none of them timed"
    if timed:
        headline = (
            f"{count_of(len(launches), 'launch', 'launches')}; the {timed} timed ones measure for "
            f"at least {format_duration(minimum_s * 1e9)} in all, plus loading and warm-up"
        )
    numbered = (
        f"{number:4}  {launch.text}" for number, launch in enumerate(planned.launches, start=1)
    )
    lines = (*describe_starts(config), *numbered, *planned.notes)
    document = {"launches": launches, "least_timing_s": minimum_s, "starts": starts}
    answer(arguments, document, Brief((AnswerLine(headline),), lines=lines))
    return 0
