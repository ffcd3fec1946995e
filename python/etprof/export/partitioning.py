"""Makes the partitioner that the options ask for."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from etprof.base.errors import UsageError
from etprof.export import upstream

if TYPE_CHECKING:
    from etprof.export.request import ExportOptions


def make_partitioners(backend: str, options: ExportOptions) -> list[Any]:
    """Returns the partitioners, in their order; none for the portable backend."""
    if backend != "xnnpack":
        return []
    precisions = [upstream.ConfigPrecisionType[name.upper()] for name in options.config_precisions]
    partitioner = upstream.XnnpackPartitioner(
        configs=_select_rules(options.operators) or None,
        config_precisions=precisions or None,
        per_op_mode=options.per_op_mode,
    )
    return [partitioner]


def _select_rules(names: tuple[str, ...]) -> list[type]:
    """Returns the rules called `names`: the class name without `Config`, in lower case."""
    rules = {
        rule.__name__.removesuffix("Config").lower(): rule
        for rule in upstream.ALL_PARTITIONER_CONFIGS
    }
    for name in names:
        if name.lower() not in rules:
            close = difflib.get_close_matches(name.lower(), rules, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(rules)}"
            msg = f"--operators {name!r}: XNNPACK's partitioner has no such rule; {hint}"
            raise UsageError(msg)
    return [rules[name.lower()] for name in names]
