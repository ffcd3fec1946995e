"""Checks a YAML file against ExecuTorch's own declaration of an LLM export, line by line.

The declaration is the `LlmConfig` of the installed ExecuTorch, loaded without PyTorch: so every
architecture and setting that it knows is known here, and none else. The file is data: its values
stand for themselves, so neither aliases nor interpolations (`${…}`, which could read variables of
the environment) are taken.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Union, get_args, get_origin, get_type_hints

import yaml

from etprof.base.errors import BuildError, UsageError
from etprof.base.files import read_input
from etprof.base.text import clean, suggest
from etprof.export_llm.uses import SettingUse, find_use

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MOST_BYTES: Final = 2**20
_DECLARATION: Final = "extension/llm/export/config/llm_config.py"
_MODULE: Final = "etprof_llm_config"
_DEEPEST: Final = 20
"""Of nested values; the declaration nests four deep."""
_SCALARS: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_TAGS: Final = {
    bool: ("bool",), int: ("int",), float: ("float", "int", "str"), str: ("str",),
}  # fmt: skip


def declared() -> Any:  # noqa: ANN401 - a class of ExecuTorch's
    """Returns ExecuTorch's `LlmConfig`; raises BuildError where this ExecuTorch has none."""
    package_spec = importlib.util.find_spec("executorch")
    folders = (package_spec.submodule_search_locations or ()) if package_spec else ()
    path = next(
        (file for folder in folders if (file := Path(folder) / _DECLARATION).is_file()), None
    )
    if path is None:
        raise BuildError(
            "no export of language models here: ExecuTorch is missing, or has none; "
            "`pip install etprof` brings the one that fits"
        )
    # By its path: the packages above it import PyTorch and all of the export.
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise BuildError(f"cannot load {path}; install ExecuTorch again")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    spec.loader.exec_module(module)
    return module.LlmConfig


@dataclass(frozen=True)
class LlmSettings:
    """What a YAML file asks for, checked."""

    path: Path
    document: dict[str, Any]
    """Only what the file says, nested as there."""
    config: Any
    """ExecuTorch's `LlmConfig` of it, with all defaults."""
    uses: dict[str, tuple[SettingUse, Any]] = field(default_factory=dict)
    """What becomes of each value that is set and not empty, by setting."""

    def get(self, setting: str) -> Any:  # noqa: ANN401 - whatever the declaration says
        """Returns a setting by its dotted name, such as `base.params`; an enumeration's own value."""
        value = self.config
        for name in setting.split("."):
            value = getattr(value, name)
        return value.value if isinstance(value, Enum) else value

    def refuse(self, setting: str, problem: str) -> NoReturn:
        """Raises UsageError that names the field."""
        raise UsageError(f"{self.path}: {setting}: {problem}")

    def of_kind(self, kind: str) -> dict[str, Any]:
        """Returns the values that are set and used so (`Use.kind`), by setting."""
        return {setting: value for setting, (use, value) in self.uses.items() if use.kind == kind}

    def resolved(self, absolute: Mapping[str, Path]) -> dict[str, Any]:
        """Returns what the file says, with these paths in place of those of the same settings."""
        settings: dict[str, Any] = _replace_paths(self.document, (), absolute)
        return settings


def _replace_paths(node: Any, keys: tuple[str, ...], paths: Mapping[str, Path]) -> Any:  # noqa: ANN401
    path = paths.get(".".join(keys))
    if path is not None:
        return str(path)
    inner = {key: _replace_paths(value, (*keys, key), paths) for key, value in _items(node)}
    return inner if isinstance(node, dict) else list(inner.values()) if inner else node


def _items(node: Any) -> Iterable[tuple[str, Any]]:  # noqa: ANN401
    if isinstance(node, dict):
        return node.items()
    return ((str(i), element) for i, element in enumerate(node)) if isinstance(node, list) else ()


def read_settings(path: Path) -> LlmSettings:
    """Reads the file; raises UsageError that names file, line and field."""
    data = read_input(path, most_bytes=_MOST_BYTES, way_out="give a YAML file", error=UsageError)
    kind = declared()
    try:
        root = yaml.compose(data.decode("utf-8"), Loader=yaml.SafeLoader)
    # A nesting of thousands ends the parser's own recursion.
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = clean(" ".join(str(error).split()))
        raise UsageError(f"{path} is no YAML: {reason}; `etprof docs llm` has an example") from None
    if root is None:
        raise UsageError(f"{path} is empty; `etprof docs llm` has an example")
    reader = _YamlReader(path)
    document = reader.read(root, kind, ())
    return LlmSettings(path, document, reader.build(kind, document, ()), reader.uses)


class _YamlReader:
    """Walks the YAML's nodes beside the declaration."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[int] = set()
        self._constructor = yaml.SafeLoader("")
        self.uses: dict[str, tuple[SettingUse, Any]] = {}

    def read(self, node: Any, kind: Any, keys: tuple[str, ...]) -> Any:  # noqa: ANN401 - YAML's
        """Returns the node's value as `kind`."""
        if id(node) in self._seen:
            self._refuse(node, keys, "is an alias; write the value out")
        self._seen.add(id(node))
        if len(keys) > _DEEPEST:
            self._refuse(node, keys, "is nested too deeply")
        kind, is_optional = _without_none(kind)
        if is_optional and self._is(node, "null"):
            return None
        if is_dataclass(kind):
            return self._read_group(node, kind, keys)
        if get_origin(kind) is list:
            if not isinstance(node, yaml.SequenceNode):
                self._refuse(node, keys, f"must be a list, not {_describe_node(node)}")
            (inner,) = get_args(kind)
            return [self.read(child, inner, (*keys, str(i))) for i, child in enumerate(node.value)]
        return self._read_scalar(node, kind, keys)

    def _read_group(self, node: Any, kind: Any, keys: tuple[str, ...]) -> dict[str, Any]:  # noqa: ANN401
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node, keys, f"must be a group of settings, not {_describe_node(node)}")
        hints = get_type_hints(kind)
        names = {field.name for field in fields(kind)}
        values: dict[str, Any] = {}
        for key, value in node.value:
            name = (
                clean(str(key.value)) if isinstance(key, yaml.ScalarNode) else _describe_node(key)
            )
            if name not in names:
                choices = f"; known here: {', '.join(sorted(names))}"
                problem = f"is not known to ExecuTorch{suggest(name, names) or choices}"
                self._refuse(key, (*keys, name), problem)
            if name in values:
                self._refuse(key, (*keys, name), "appears twice; keep one")
            use = find_use(kind, name)
            if use is None:
                msg = "etprof does not know what this ExecuTorch does with it; leave it out"
                self._refuse(key, (*keys, name), msg)
            values[name] = self.read(value, hints[name], (*keys, name))
            if values[name]:
                self.uses[".".join((*keys, name))] = use, values[name]
        needed = [
            field.name
            for field in fields(kind)
            if field.default is field.default_factory is MISSING
        ]
        for name in needed:
            if name not in values:
                self._refuse(node, (*keys, name), "is missing")
        return values

    def _read_scalar(self, node: Any, kind: Any, keys: tuple[str, ...]) -> Any:  # noqa: ANN401
        expected = _type_name(kind)
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(node, keys, f"must be {expected}, not {_describe_node(node)}")
        text = str(node.value)
        if "${" in text or text == "???":
            self._refuse(node, keys, "values stand for themselves here; write it out")
        if isinstance(kind, type) and issubclass(kind, Enum):
            if text not in kind.__members__:
                self._refuse(
                    node,
                    keys,
                    f"must be {expected}, not {clean(text)!r}{suggest(text, kind.__members__)}",
                )
            return text
        if not self._is(node, *_TAGS[kind]):
            self._refuse(node, keys, f"must be {expected}, not {_describe_node(node)}")
        try:
            # YAML 1.1 takes 1e-5 for text.
            return kind(text) if kind in {str, float} else self._constructor.construct_object(node)
        except ValueError:
            self._refuse(node, keys, f"must be {expected}, not {_describe_node(node)}")

    def build(self, kind: Any, document: Any, keys: tuple[str, ...]) -> Any:  # noqa: ANN401
        """Returns ExecuTorch's own object, which checks what depends on several settings."""
        kind, _ = _without_none(kind)
        if document is None:
            return None
        if get_origin(kind) is list:
            return [self.build(get_args(kind)[0], element, keys) for element in document]
        if not is_dataclass(kind):
            return kind[document] if isinstance(kind, type) and issubclass(kind, Enum) else document
        hints = get_type_hints(kind)
        values = {k: self.build(hints[k], element, (*keys, k)) for k, element in document.items()}
        try:
            return kind(**values)  # type: ignore[operator] # a class of ExecuTorch's
        except (ValueError, TypeError, AssertionError) as error:
            where = ".".join(keys) or "the settings"
            raise UsageError(f"{self._path}: {where}: {clean(str(error))}") from None

    @staticmethod
    def _is(node: Any, *names: str) -> bool:  # noqa: ANN401
        return any(node.tag == f"tag:yaml.org,2002:{name}" for name in names)

    def _refuse(self, node: Any, keys: tuple[str, ...], problem: str) -> NoReturn:  # noqa: ANN401
        line = node.start_mark.line + 1
        where = clean(".".join(keys)) or "the file"
        raise UsageError(f"{self._path}: line {line}: {where}: {problem}")


def _without_none(kind: Any) -> tuple[Any, bool]:  # noqa: ANN401
    if get_origin(kind) in {Union, types.UnionType}:
        inner = [argument for argument in get_args(kind) if argument is not type(None)]
        return inner[0], len(inner) < len(get_args(kind))
    return kind, False


def _type_name(kind: Any) -> str:  # noqa: ANN401
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(kind.__members__)}"
    return _SCALARS[kind]


def _describe_node(node: Any) -> str:  # noqa: ANN401
    """Says what a node is, in words."""
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a group of settings"
    return repr(clean(str(node.value), 80))
