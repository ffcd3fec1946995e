"""Write, check or describe measurement configs.

etprof config init > config.json        a config to start from (--template android, mac, …)
etprof config check config.json         every problem, with its field; what it would start
etprof config schema                    the JSON Schema, for editors
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from etprof.base.text import clean_lines, command_line
from etprof.cli.flags import FULL, JSON, add_flags
from etprof.cli.output import answer, show_schema
from etprof.targets.registry import TARGETS

TEMPLATES = tuple(kind.name for kind in TARGETS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    actions = parser.add_subparsers(dest="action", metavar="init|check|schema", required=True)
    init = actions.add_parser("init", help="print a config to start from")
    init.add_argument("--template", choices=TEMPLATES, default=TEMPLATES[0])
    init.add_argument(
        "--model", metavar="MODEL", help="model to put in, as `etprof profile` takes it"
    )
    init.add_argument("--out", type=Path, metavar="FILE", help="write there; never overwrites")
    check = actions.add_parser("check", help="list every problem of a config")
    add_flags(check, ("config", Path, "", "the file to check"), FULL, JSON)
    actions.add_parser("schema", help="print the JSON Schema of configs")


def run(arguments: argparse.Namespace) -> int:
    """Does what was asked."""
    if arguments.action == "check":
        return _check(arguments)
    if arguments.action == "schema":
        from etprof.config import Config

        show_schema(Config.model_json_schema())
        return 0
    return _init(arguments)


def _check(arguments: argparse.Namespace) -> int:
    from etprof.base.units import count_of
    from etprof.config import load_config
    from etprof.measuring.starting import describe_starts, list_starts
    from etprof.tables.brief import AnswerLine, Brief

    path = arguments.config
    config = load_config(path)
    names = [experiment.name for experiment in config.experiments]
    headline = f"{path} is valid: {count_of(len(names), 'experiment')} ({', '.join(names)})"
    document = {"config": str(path), "experiments": names, "starts": list_starts(config)}
    lines = tuple(f"  {line}" for line in describe_starts(config))
    answer(arguments, document, Brief((AnswerLine(headline),), lines=lines))
    return 0


def _name_of(model: str) -> str:
    """Names the model as `etprof profile` does, so that both keep its runs in one folder."""
    from etprof.export.request import ExportRequest
    from etprof.run.program import load_export_manifest

    if not model.endswith(".pte"):
        return ExportRequest.short_name(model)
    manifest = load_export_manifest(Path(model))
    return manifest.model if manifest else Path(model).stem


def _init(arguments: argparse.Namespace) -> int:
    """Prints or writes a template."""
    from etprof.base.atomic import write_text
    from etprof.base.errors import OutputError
    from etprof.base.json_input import parse_json
    from etprof.config import read_installed
    from etprof.run.directory import runs_folder

    text = read_installed(f"templates/{arguments.template}_template.json")
    if arguments.model:
        template = parse_json(text)
        root = runs_folder(_name_of(arguments.model), Path(template["output_root"]).name)
        filled = {**template, "model": arguments.model, "output_root": str(root)}
        text = json.dumps(filled, indent=2) + "\n"
    if arguments.out is None:
        print(text, end="")
        return 0
    if arguments.out.exists():
        raise OutputError(f"{arguments.out} exists and is not overwritten; choose another --out")
    write_text(arguments.out, text)
    first = "fill in what says REPLACE_WITH, then " if "REPLACE_WITH" in text else ""
    command = command_line("run", arguments.out)
    print(clean_lines(f"Wrote {arguments.out}; {first}`{command}` measures it"))
    return 0
