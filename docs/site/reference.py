"""The pages of the site that are written by nobody: commands, files and tables as they are declared."""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.columns import column_lists

import etprof
from etprof.base import errors
from etprof.bench.matrix import Matrix
from etprof.cli import COMMANDS, build_parser
from etprof.config import Config
from etprof.history.connection import StoreError

SCHEMAS: dict[str, dict[str, Any]] = {
    "config": Config.model_json_schema(),
    "matrix": Matrix.model_json_schema(),
}
"""The JSON Schemas of files that people write."""
_PURPOSES = {
    "config": """\
`etprof run CONFIG.json` measures what a config says. `etprof config init` writes one,
`etprof config check` checks it, `etprof config schema` prints this schema.""",
    "matrix": """\
`etprof bench MATRIX.json` measures what a matrix says. `etprof bench --init` writes one,
`etprof bench --schema` prints this schema.""",
}


def pages() -> dict[str, str]:
    """Returns the text of each generated page by its file name."""
    return {
        "columns.md": f"# Columns\n\n{column_lists()}",
        "commands.md": commands_page(),
        "files.md": files_page(),
        "messages.md": messages_page(),
    }


def schema_files() -> dict[str, str]:
    """Returns each JSON Schema by its file name, for editors."""
    return {
        f"{name}.schema.json": json.dumps(schema, indent=2) + "\n"
        for name, schema in SCHEMAS.items()
    }


def commands_page() -> str:
    """Returns every command with its options, from the argument parser."""
    parsers = _subparsers(build_parser())
    sections = [_command_section(name, parsers[name], 2) for name in COMMANDS]
    head = "# Commands\n\n`etprof COMMAND --help` prints the same in a terminal.\n\n"
    return head + "\n".join(sections)


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Returns the parsers of a command's own commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _command_section(name: str, parser: argparse.ArgumentParser, level: int) -> str:
    texts = [text.strip() for text in (parser.description, parser.epilog) if text]
    parts = [f"{'#' * level} etprof {name}\n", *(f"```text\n{text}\n```\n" for text in texts)]
    rows = list(_option_rows(parser))
    if rows:
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows, ""]))
    for action, inner in _subparsers(parser).items():
        parts.append(_command_section(f"{name} {action}", inner, level + 1))
    return "\n".join(parts)


def _option_rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        is_help = isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
        if is_help or action.help == argparse.SUPPRESS:
            continue
        value = action.metavar or ("" if action.nargs == 0 else _value(action))
        words = value if isinstance(value, str) else " ".join(value)
        flags = ", ".join(action.option_strings)
        meaning = (action.help or "") % {**vars(action), "prog": parser.prog}
        yield f"| `{_cell(f'{flags} {words}'.strip())}` | {_cell(meaning)} |"


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def files_page() -> str:
    """Returns every field of the files that people write, from their JSON Schemas."""
    parts = ["# Files that you write\n"]
    for name, schema in SCHEMAS.items():
        link = f"<a href='{name}.schema.json'>{name}.schema.json</a>"
        parts.append(f"## {name}\n\n{_PURPOSES[name]}\n\nFor editors: {link}.\n")
        parts += _object_sections(name, schema, schema.get("$defs", {}))
    return "\n".join(parts)


def _object_sections(
    name: str, schema: dict[str, Any], definitions: dict[str, Any]
) -> Iterator[str]:
    yield _fields(schema)
    for title, inner in definitions.items():
        says = inner.get("description", "")
        yield f"### {name}: {title}\n\n{says}\n\n{_fields(inner)}"


def _fields(schema: dict[str, Any]) -> str:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    required = schema.get("required", ())
    for field, inner in schema.get("properties", {}).items():
        default = "required" if field in required else f"`{json.dumps(inner.get('default'))}`"
        says = inner.get("description", "")
        rows.append(f"| `{field}` | {_cell(_kind(inner))} | {_cell(default)} | {_cell(says)} |")
    return "\n".join([*rows, ""])


def _kind(schema: dict[str, Any]) -> str:
    """Returns a field's type and bounds in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            kinds = (_kind(inner) for inner in schema[key] if inner.get("type") != "null")
            return " or ".join(dict.fromkeys(kinds))
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return " ".join([kind, *_bounds(schema)])


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    signs = {"exclusiveMinimum": "> ", "minimum": "≥ ", "exclusiveMaximum": "< ", "maximum": "≤ "}
    for key, sign in signs.items():
        if key in schema:
            yield f"{sign}{schema[key]:,}"


def _cell(text: str) -> str:
    """Returns text that stays in its cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def messages_page() -> str:
    """Returns every message of the package's errors by exit code, from the code that raises them."""
    by_code: dict[int, set[str]] = defaultdict(set)
    for module in sorted(Path(etprof.__file__).parent.rglob("*.py")):
        for code, text in _messages(ast.parse(module.read_text())):
            # What is filled in alone cannot be searched for.
            if len(re.sub(r"\W", "", text)) > LEAST_LETTERS:
                by_code[code].add(text)
    parts = ["# Messages", _MESSAGES_HEAD]
    for code, texts in sorted(by_code.items()):
        shown = sorted(texts, key=str.lower)
        parts += [f"## Exit code {code}: {_MEANINGS[code]}", "\n".join(map(_item, shown))]
    return "\n\n".join(parts) + "\n"


LEAST_LETTERS = 12
_MESSAGES_HEAD = """\
`…` stands for what is filled in: a file, a field, a number.
[When something goes wrong](troubleshooting.md) has the ways out by subject."""
_KINDS: dict[str, int] = {
    kind.__name__: kind.exit_code
    for kind in (*vars(errors).values(), StoreError)
    if isinstance(kind, type) and issubclass(kind, errors.EtprofError)
}
_MEANINGS = {
    kind.exit_code: (kind.__doc__ or "").splitlines()[0]
    for kind in (
        errors.UsageError,
        errors.BuildError,
        errors.InputFileError,
        errors.TargetError,
        errors.ExportError,
        errors.OutputError,
        StoreError,
    )
}


def _messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields exit code and text of each error that a module makes."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        named = {
            target.id: _text(node.value)
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                code, first = _KINDS.get(node.func.id), node.args[0]
                if code is not None:
                    is_name = isinstance(first, ast.Name)
                    yield code, named.get(ast.unparse(first), "") if is_name else _text(first)


def _text(node: ast.expr) -> str:
    """Returns a text of the code with `…` for what is filled in; no text is empty."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp):
        return (_text(node.left) or "…") + (_text(node.right) or "…")
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "…" if isinstance(node, ast.FormattedValue) else ""


def _item(text: str) -> str:
    """Returns a line of a list; a message has backquotes of its own."""
    return f"- `` {' '.join(text.split())} ``"
