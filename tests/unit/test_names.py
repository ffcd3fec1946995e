"""What things are called, and what the docstrings of arrays say: the rules that a machine can check."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection

from tests import house_debts
from tests.unit.test_codebase import MODULES, PACKAGE, functions, name_of, tree_of

VAGUE = {
    "found", "each", "known", "given", "told", "kept", "place", "places", "asked", "wanted",
    "chosen", "others", "other", "made", "shown", "several", "entry", "thing", "things", "taken",
    "read", "own", "way", "word", "words", "what", "parts", "part", "whole", "rest", "beside",
    "apart", "left", "least", "most",
}  # fmt: skip
"""Words that say nothing of what a variable or parameter is."""
MOST_VAGUE = 0.005
"""Share of all names: what the best of the field has. Some of these words are right, such as the
other of two things that are compared."""


def test_class_names_are_unique() -> None:
    """H4: 31 names were defined twice or more, `Session` and `Step` three and four times."""
    modules: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name.lstrip("_"), []).append(name_of(module))
    assert len(modules) > 400
    doubled = {name for name, definitions in modules.items() if len(definitions) > 1}
    assert doubled == house_debts.DOUBLED_CLASSES, {name: modules[name] for name in doubled}


def count_names() -> Counter[str]:
    """How often each word is a variable, a field or a parameter of the package."""
    names = Counter[str]()
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] += 1
            elif isinstance(node, ast.arg):
                names[node.arg] += 1
    return names


def test_names_say_what_they_name() -> None:
    """H4: 12.3 % of the names were such words; memray has 0.5 %, ibis 2.8 %."""
    names = count_names()
    vague = Counter({name: count for name, count in names.items() if name in VAGUE})
    assert names.total() > 20_000
    assert vague.total() <= MOST_VAGUE * names.total(), vague.most_common(12)


def array_names() -> set[str]:
    """NDArray, and the names that modules of the package give to one of its kinds."""
    aliases = {
        target.id
        for module in MODULES
        for node in tree_of(module).body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.value).split("[")[0].endswith("NDArray")
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return {"NDArray", *aliases}


def takes_or_gives_arrays(
    function: ast.FunctionDef | ast.AsyncFunctionDef, names: Collection[str]
) -> bool:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one]
    annotations = [*(one.annotation for one in every), function.returns]
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and (node.id if isinstance(node, ast.Name) else node.attr) in names
        for annotation in annotations
        if annotation is not None
        for node in ast.walk(annotation)
    )


def test_functions_with_arrays_say_their_shapes() -> None:
    """H4: of 61 functions with arrays one said a shape."""
    names = array_names()
    with_arrays = {
        f"{module.relative_to(PACKAGE)}:{function.lineno} {function.name}": function
        for module in MODULES
        for function in functions(module)
        if takes_or_gives_arrays(function, names)
    }
    assert len(with_arrays) > 50
    silent = [
        where
        for where, function in with_arrays.items()
        if "shape" not in (ast.get_docstring(function) or "").lower()
    ]
    assert not silent, "say the shape, the dtype where it matters, and the unit"
