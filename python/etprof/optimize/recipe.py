"""A script that makes the optimised program again, step by step, from the model itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from etprof._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.export.request import ExportRequest

_FLOAT = """\
    methods = {{name: lowering.cast_method(each, torch.{dtype}{also}) for name, each in methods.items()}}
"""
_INTEGER = """\
    precision = parse_precision({precision!r})
    methods = {{name: lowering.cast_method(each, torch.{dtype}) for name, each in methods.items()}}
    for name, each in methods.items():
        methods[name], _ = lowering.quantize_method(
            name, each, precision, BY_NAME[BACKEND], rewriting{also}
        )
"""
_NO_NAME: Final = re.compile(r"[^\w.:/ -]")
_RECIPE = '''\
"""Makes the program that `etprof optimize` found for {title} in {precision}.

Needs ExecuTorch and etprof {version}: python recipe.py OUT.pte
What each rewrite changes, and why that is legal: `etprof docs optimize`.
"""

import sys

import torch

from etprof.backends.executorch_version import require_executorch
from etprof.backends.registry import BY_NAME
from etprof.export import lowering, model_loading
from etprof.export.changes.exclusions import parse_exclusions
from etprof.export.changes.rewriting import Rewriting
from etprof.export.changes.scopes import parse_scopes
from etprof.export.request import ExportOptions, parse_precision

MODEL = {model!r}
BACKEND = {backend!r}
REWRITES = [
{rewrites}
]
EXCLUSIONS = {exclusions}
{scopes}

def make():
    require_executorch("this recipe")
    torch.manual_seed(0)
    methods = model_loading.load_methods(MODEL, {weights!r}{inputs})
    options = ExportOptions(rewrites=tuple(REWRITES))
    known = {{each.name: each for each in BY_NAME[BACKEND].exporter().rewrites()}}
    rewriting = Rewriting(
        [known[name] for name in REWRITES], exclusions=parse_exclusions(EXCLUSIONS)
    )
{convert}
    # 1. PyTorch's graph, with the rewrites of graphs applied to it
    traced = {{
        name: rewriting.before_lowering(lowering.trace(name, each))
        for name, each in methods.items()
    }}
    # 2. ExecuTorch's lowering, with the rewrites of the lowering in force
    constants = model_loading.load_constants(MODEL)
    lowered = lowering.lower(traced, BACKEND, options, constants)
    # 3. the program
    shared = lowering.find_shared_buffers(methods)
    return lowering.make_program(lowered.edge, options, shared)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python recipe.py OUT.pte")
    with open(sys.argv[1], "wb") as file:
        make().write_to_file(file)
'''


def write_recipe(request: ExportRequest) -> str:
    """Returns the script's text for a request whose rewrites are named one by one."""
    precision, options = request.parsed_precision(), request.options
    convert = (_FLOAT if precision.quantization is None else _INTEGER).format(
        dtype=precision.float_dtype,
        precision=precision.name,
        also=", scopes=parse_scopes(SCOPES)" if options.scopes else "",
    )
    scopes = f"SCOPES = [\n{_listed(options.scopes)}\n]\n"
    weights = request.options.weights
    return _RECIPE.format(
        # Where a text ends there is code: a folder may have quotes in its name.
        title=_NO_NAME.sub("_", request.model),
        model=request.model,
        precision=precision.name,
        backend=request.backend,
        version=__version__,
        rewrites=_listed(tuple(dict.fromkeys((*request.precision_rewrites(), *options.rewrites)))),
        exclusions=list(options.rewrite_exclusions),
        scopes=scopes if options.scopes else "",
        weights=None if weights is None else str(weights),
        inputs=f", {options.example_inputs!r}" if options.example_inputs else "",
        convert=convert.rstrip("\n"),
    )


def _listed(names: Sequence[str]) -> str:
    """Returns a line of a list for each."""
    return "\n".join(f"    {name!r}," for name in names)
