"""List the models that can be exported, and what each of them takes.

Inputs are dtype[shape]; MACs are multiply-accumulates of one inference. Your own models are found
through ETPROF_MODEL_PATH, whose folders hold <name>/model.py, or named as path/to/file.py:Class.

  etprof models
  ETPROF_MODEL_PATH=my_models etprof models --json
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from etprof.base.text import clean_lines

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints the list."""
    from etprof.export.model_loading import describe_models

    models = describe_models()
    if arguments.json:
        print(json.dumps({"schema_version": 1, "models": models}, indent=2))
    else:
        _print_table(models)
    return 0


def _print_table(models: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.text import Text

    from etprof.base.plain_table import PlainTable
    from etprof.base.units import format_count

    table = PlainTable()
    for title in ("model", "inputs", "parameters", "MACs"):
        # A figure that is cut would be another figure.
        table.add_column(title, overflow="fold")
    for model in models:
        methods = model["methods"]
        table.add_row(
            Text(model["name"]),
            Text("\n".join(_describe_inputs(each, alone=len(methods) == 1) for each in methods)),
            format_count(model["parameters"]),
            "\n".join(format_count(method["macs"]) for method in methods),
        )
    Console().print(table)
    for model in models:
        if model["problem"]:
            print(clean_lines(model["problem"]))


def _describe_inputs(method: dict[str, Any], *, alone: bool) -> str:
    text = ", ".join(method["inputs"])
    return text if alone else f"{method['name']}: {text}"
