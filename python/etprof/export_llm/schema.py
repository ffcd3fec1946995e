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
    found = importlib.util.find_spec("executorch")
    folders = (found.submodule_search_locations or ()) if found else ()
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
    given: dict[str, Any]
    """Only what the file says, nested as there."""
    config: Any
    """ExecuTorch's `LlmConfig` of it, with all defaults."""
    uses: dict[str, tuple[SettingUse, Any]] = field(default_factory=dict)
    """What becomes of each value that is set, by its place; of those that are not empty."""

    def get(self, place: str) -> Any:  # noqa: ANN401 - whatever the declaration says
        """Returns a setting by its place, such as `base.params`; an enumeration's own value."""
        found = self.config
        for name in place.split("."):
            found = getattr(found, name)
        return found.value if isinstance(found, Enum) else found

    def refuse(self, place: str, problem: str) -> NoReturn:
        """Raises UsageError that names the field."""
        raise UsageError(f"{self.path}: {place}: {problem}")

    def of_kind(self, kind: str) -> dict[str, Any]:
        """Returns the values that are set and used so (`Use.kind`), by their settings' places."""
        return {place: value for place, (use, value) in self.uses.items() if use.kind == kind}

    def resolved(self, absolute: Mapping[str, Path]) -> dict[str, Any]:
        """Returns what the file says, with these paths in place of those at the same places."""
        settings: dict[str, Any] = _replace_paths(self.given, (), absolute)
        return settings


def _replace_paths(node: Any, place: tuple[str, ...], paths: Mapping[str, Path]) -> Any:  # noqa: ANN401
    path = paths.get(".".join(place))
    if path is not None:
        return str(path)
    inner = {key: _replace_paths(value, (*place, key), paths) for key, value in _items(node)}
    return inner if isinstance(node, dict) else list(inner.values()) if inner else node


def _items(node: Any) -> Iterable[tuple[str, Any]]:  # noqa: ANN401
    if isinstance(node, dict):
        return node.items()
    return ((str(i), each) for i, each in enumerate(node)) if isinstance(node, list) else ()


def read_settings(path: Path) -> LlmSettings:
    """Reads the file; raises UsageError that names file, line and field."""
    data = read_input(path, most_bytes=_MOST_BYTES, way_out="give a YAML file", error=UsageError)
    kind = declared()
    try:
        root = yaml.compose(data.decode("utf-8"), Loader=yaml.SafeLoader)
    # A nesting of thousands ends the parser's own recursion.
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = clean(" ".join(str(error).split()))
        raise UsageError(f"{path} is no YAML: {reason}; see docs/llm.md for an example") from None
    if root is None:
        raise UsageError(f"{path} is empty; see docs/llm.md for an example")
    reader = _YamlReader(path)
    given = reader.read(root, kind, ())
    return LlmSettings(path, given, reader.build(kind, given, ()), reader.uses)


class _YamlReader:
    """Walks the YAML's nodes beside the declaration."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[int] = set()
        self._constructor = yaml.SafeLoader("")
        self.uses: dict[str, tuple[SettingUse, Any]] = {}

    def read(self, node: Any, kind: Any, place: tuple[str, ...]) -> Any:  # noqa: ANN401 - YAML's
        """Returns the node's value as `kind`."""
        if id(node) in self._seen:
            self._refuse(node, place, "is an alias; write the value out")
        self._seen.add(id(node))
        if len(place) > _DEEPEST:
            self._refuse(node, place, "is nested too deeply")
        kind, is_optional = _without_none(kind)
        if is_optional and self._is(node, "null"):
            return None
        if is_dataclass(kind):
            return self._read_group(node, kind, place)
        if get_origin(kind) is list:
            if not isinstance(node, yaml.SequenceNode):
                self._refuse(node, place, f"must be a list, not {_looks(node)}")
            (inner,) = get_args(kind)
            return [self.read(each, inner, (*place, str(i))) for i, each in enumerate(node.value)]
        return self._read_scalar(node, kind, place)

    def _read_group(self, node: Any, kind: Any, place: tuple[str, ...]) -> dict[str, Any]:  # noqa: ANN401
        if not isinstance(node, yaml.MappingNode):
            self._refuse(node, place, f"must be a group of settings, not {_looks(node)}")
        known = get_type_hints(kind)
        names = {each.name for each in fields(kind)}
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = clean(str(key.value)) if isinstance(key, yaml.ScalarNode) else _looks(key)
            if name not in names:
                others = f"; known here: {', '.join(sorted(names))}"
                told = f"is not known to ExecuTorch{suggest(name, names) or others}"
                self._refuse(key, (*place, name), told)
            if name in found:
                self._refuse(key, (*place, name), "stands there twice; keep one")
            use = find_use(kind, name)
            if use is None:
                msg = "etprof does not know what this ExecuTorch does with it; leave it out"
                self._refuse(key, (*place, name), msg)
            found[name] = self.read(value, known[name], (*place, name))
            if found[name]:
                self.uses[".".join((*place, name))] = use, found[name]
        needed = [
            each.name for each in fields(kind) if each.default is each.default_factory is MISSING
        ]
        for name in needed:
            if name not in found:
                self._refuse(node, (*place, name), "is missing")
        return found

    def _read_scalar(self, node: Any, kind: Any, place: tuple[str, ...]) -> Any:  # noqa: ANN401
        wanted = _words(kind)
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(node, place, f"must be {wanted}, not {_looks(node)}")
        text = str(node.value)
        if "${" in text or text == "???":
            self._refuse(node, place, "values stand for themselves here; write it out")
        if isinstance(kind, type) and issubclass(kind, Enum):
            if text not in kind.__members__:
                self._refuse(
                    node,
                    place,
                    f"must be {wanted}, not {clean(text)!r}{suggest(text, kind.__members__)}",
                )
            return text
        if not self._is(node, *_TAGS[kind]):
            self._refuse(node, place, f"must be {wanted}, not {_looks(node)}")
        try:
            # YAML 1.1 takes 1e-5 for text.
            return kind(text) if kind in {str, float} else self._constructor.construct_object(node)
        except ValueError:
            self._refuse(node, place, f"must be {wanted}, not {_looks(node)}")

    def build(self, kind: Any, given: Any, place: tuple[str, ...]) -> Any:  # noqa: ANN401
        """Returns ExecuTorch's own object, which checks what depends on several settings."""
        kind, _ = _without_none(kind)
        if given is None:
            return None
        if get_origin(kind) is list:
            return [self.build(get_args(kind)[0], each, place) for each in given]
        if not is_dataclass(kind):
            return kind[given] if isinstance(kind, type) and issubclass(kind, Enum) else given
        known = get_type_hints(kind)
        values = {k: self.build(known[k], each, (*place, k)) for k, each in given.items()}
        try:
            return kind(**values)  # type: ignore[operator] # a class of ExecuTorch's
        except (ValueError, TypeError, AssertionError) as error:
            where = ".".join(place) or "the settings"
            raise UsageError(f"{self._path}: {where}: {clean(str(error))}") from None

    @staticmethod
    def _is(node: Any, *names: str) -> bool:  # noqa: ANN401
        return any(node.tag == f"tag:yaml.org,2002:{name}" for name in names)

    def _refuse(self, node: Any, place: tuple[str, ...], problem: str) -> NoReturn:  # noqa: ANN401
        line = node.start_mark.line + 1
        where = clean(".".join(place)) or "the file"
        raise UsageError(f"{self._path}: line {line}: {where}: {problem}")


def _without_none(kind: Any) -> tuple[Any, bool]:  # noqa: ANN401
    if get_origin(kind) in {Union, types.UnionType}:
        inner = [each for each in get_args(kind) if each is not type(None)]
        return inner[0], len(inner) < len(get_args(kind))
    return kind, False


def _words(kind: Any) -> str:  # noqa: ANN401
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(kind.__members__)}"
    return _SCALARS[kind]


def _looks(node: Any) -> str:  # noqa: ANN401
    """Says what a node is, in words."""
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a group of settings"
    return repr(clean(str(node.value), 80))
