"""List the models that can be exported, and what each of them takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints the list."""
    from etprof.export.model_list import describe_models

    models = describe_models()
    if arguments.json:
        print(json.dumps({"schema_version": 1, "models": models}, indent=2))
    else:
        _print_table(models)
    return 0


def _print_table(models: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from etprof.units import format_count

    table = Table("model", "inputs", "parameters", "needs", "found in")
    for model in models:
        table.add_row(
            model["name"],
            ", ".join(model["inputs"] or ()),
            format_count(model["parameters"]),
            model["problem"] or ", ".join(model["needs"]),
            model["origin"],
        )
    Console().print(table)
