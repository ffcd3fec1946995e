"""List the models that can be exported, and what each of them takes.

Inputs are dtype[shape]; MACs are multiply-accumulates of one inference. Your own models are found
through ETPROF_MODEL_PATH, whose folders hold <name>/model.py, or named as path/to/file.py:Class.
Models of other packages have a family's name before theirs, such as torchvision:resnet18; their
weights are random or a local folder's, and nothing is downloaded.

  etprof models
  ETPROF_MODEL_PATH=my_models etprof models --json
"""

from __future__ import annotations

import argparse
from typing import Any

from etprof.base.text import clean_lines
from etprof.cli.flags import FULL, JSON, add_flags
from etprof.cli.output import answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(parser, FULL, JSON)


def run(arguments: argparse.Namespace) -> int:
    """Prints the list."""
    from etprof.export.model_loading import describe_models
    from etprof.model_registry.families import FAMILIES
    from etprof.tables import machine
    from etprof.tables.brief import listed

    models, families = describe_models(), machine.FAMILIES.of(FAMILIES.values())
    table = machine.MODELS.of(row for model in models for row in _rows(model))
    problems = (model["problem"] for model in models if model["problem"])
    named = ", ".join(str(record["prefix"]) for record in families.records())
    answer(
        arguments,
        {"models": models, "families": families.records()},
        listed(table, details=(*problems, families), ends=[f"Other packages' models: {named}"]),
    )
    return 0


def _rows(model: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row per method; the model's own figures stand in the first."""
    is_only_method = len(model["methods"]) == 1
    methods = [
        {"inputs": _describe_inputs(method, is_only_method=is_only_method), "macs": method["macs"]}
        for method in model["methods"]
    ] or [{"inputs": "", "macs": None}]
    first = {"model": clean_lines(model["name"]), "parameters": model["parameters"]}
    return [
        {**(first if index == 0 else {"model": "", "parameters": None}), **method}
        for index, method in enumerate(methods)
    ]


def _describe_inputs(method: dict[str, Any], *, is_only_method: bool) -> str:
    text = ", ".join(method["inputs"])
    return text if is_only_method else f"{method['name']}: {text}"
