"""Applies rewrites to traced programs: one retracing for all of them, and constants folded after."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
import torch.fx.traceback as fx_traceback
from torch._guards import detect_fake_mode
from torch.utils._python_dispatch import TorchDispatchMode

from etprof.backends.registry import BY_NAME
from etprof.backends.rewrite import (
    GraphRewrite,
    ProgramRewrite,
    QuantizationRewrite,
    find_constants,
    find_overload,
)
from etprof.base.errors import EtprofError, ExportError, UsageError, first_line
from etprof.base.text import suggest
from etprof.export import upstream
from etprof.export.changes.exclusions import FLAG, is_excluded
from etprof.export.operators import MissedRewrites, find_traced, module_path
from etprof.run.program import AppliedRewrite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from etprof.backends.rewrite import Rewrite
    from etprof.export.changes.exclusions import RewriteExclusion
    from etprof.export.operators import LoweredMethod
    from etprof.export.request import ExportRequest

_FOLDED: Final = "_prop_tensor_constant"
"""How ExecuTorch's pass calls what it has computed."""


def plan_rewriting(request: ExportRequest) -> Rewriting:
    """Returns what is to be applied; raises UsageError as `sound_rewrites` does.

    And for an exclusion of a rewrite that is not here, or that knows no modules.
    """
    exclusions = request.exclusions()
    rewrites = {rewrite.name: rewrite for rewrite in BY_NAME[request.backend].exporter().rewrites()}
    for exclusion in exclusions:
        name = exclusion.rewrite
        if name not in rewrites:
            hint = suggest(name, rewrites) or f"; choose from {', '.join(rewrites)}"
            raise UsageError(f"{FLAG} {str(exclusion)!r}: {name!r} is no rewrite{hint}")
        if rewrites[name].level != "graph":
            msg = f"{FLAG} {str(exclusion)!r}: {name} changes the {rewrites[name].level}, where nothing"
            raise UsageError(
                f"{msg} says which module an operator is of; leave it out of --rewrite"
            )
    return Rewriting(sound_rewrites(request), request.precision_rewrites(), exclusions)


def sound_rewrites(request: ExportRequest) -> list[type[Rewrite]]:
    """Returns the rewrites that a request asks for, `all` and its precision's own spelled out.

    Raises UsageError for one that is not here: nobody knows its name, or the installed ExecuTorch
    lacks what it rests on.
    """
    rewrites = {rewrite.name: rewrite for rewrite in BY_NAME[request.backend].exporter().rewrites()}
    requested, precision_rewrites = request.options.rewrites, request.precision_rewrites()
    problems = {name: rewrite.find_objection() for name, rewrite in rewrites.items()}
    for name in precision_rewrites:
        problem = problems.get(name, f"backend {request.backend!r} does not take its weights")
        if problem is not None:
            raise UsageError(f"--dtype {request.precision}: {problem}; choose another precision")
    for name in requested:
        if name not in {"all", *rewrites}:
            choices = ", ".join(("all", *rewrites))
            hint = suggest(name, rewrites) or ";"
            raise UsageError(f"--rewrite {name!r} is unknown{hint} choose from {choices}")
        if name != "all" and problems[name] is not None:
            raise UsageError(f"--rewrite {name} is not sound here: {problems[name]}; leave it out")
    return [
        rewrite
        for name, rewrite in rewrites.items()
        if problems[name] is None
        and ("all" in requested or name in (*requested, *precision_rewrites))
    ]


def left_out_rewrites(request: ExportRequest) -> dict[str, str]:
    """Returns why those that `all` would have are not sound here, by their names."""
    if "all" not in request.options.rewrites:
        return {}
    rewrites = BY_NAME[request.backend].exporter().rewrites()
    return {
        rewrite.name: objection
        for rewrite in rewrites
        if (objection := rewrite.find_objection()) is not None
    }


@dataclass
class Rewriting:
    """The rewrites of one export, and how many operators each has replaced."""

    rewrites: Sequence[type[Rewrite]] = ()
    of_precision: Sequence[str] = ()
    """Names of those that the precision is made with; the others were asked for."""
    exclusions: Sequence[RewriteExclusion] = ()
    """Modules that some of them leave as they are."""
    operators: Counter[str] = field(default_factory=Counter)
    modules: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """Paths of the modules whose operators each has replaced, in the order of the graph."""

    @property
    def names(self) -> list[str]:
        """Names of all of them."""
        return [rewrite.name for rewrite in self.rewrites]

    @property
    def applied(self) -> tuple[AppliedRewrite, ...]:
        """Those that found something to change, but for the precision's own."""
        return tuple(
            AppliedRewrite(name=rewrite.name, operators=self.operators[rewrite.name])
            for rewrite in self.rewrites
            if self.operators[rewrite.name] and rewrite.name not in self.of_precision
        )

    def check_precision(self) -> None:
        """Raises ExportError where the program is not of the precision that its name says."""
        for name in self.of_precision:
            if not self.operators[name]:
                msg = f"{name}, which this precision is made with, finds no weights to change"
                raise ExportError(f"{msg}; export another precision")

    def of_quantization(self) -> list[type[QuantizationRewrite]]:
        """Returns those that change what is quantised, and how."""
        return [rewrite for rewrite in self.rewrites if issubclass(rewrite, QuantizationRewrite)]

    def before_quantization(
        self, program: torch.export.ExportedProgram
    ) -> torch.export.ExportedProgram:
        """Applies those whose operators a quantiser should see."""
        return self._apply(program, lambda rewrite: rewrite.precedes_quantization)

    def before_lowering(
        self, program: torch.export.ExportedProgram
    ) -> torch.export.ExportedProgram:
        """Applies all of them, to whatever is left."""
        return self._apply(program, lambda _: True)

    def _apply(
        self,
        program: torch.export.ExportedProgram,
        is_due: Callable[[type[GraphRewrite | ProgramRewrite]], bool],
    ) -> torch.export.ExportedProgram:
        graph = [
            rewrite
            for rewrite in self.rewrites
            if issubclass(rewrite, GraphRewrite | ProgramRewrite)
        ]
        due = [rewrite for rewrite in graph if is_due(rewrite)]
        return _rewrite(program, due, self.exclusions, self._note)

    def _note(self, rewrite: str, path: str) -> None:
        self.operators[rewrite] += 1
        self.modules[rewrite][path] = None


def _rewrite(
    program: torch.export.ExportedProgram,
    rewrites: Sequence[type[GraphRewrite | ProgramRewrite]],
    exclusions: Sequence[RewriteExclusion],
    note: Callable[[str, str], None],
) -> torch.export.ExportedProgram:
    """Returns the rewritten program, or the same one where nothing applies.

    `note` hears of each operator that is replaced, before it is: of the rewrite's name and the module.
    """
    names, table = dict[Any, str](), dict[Any, Callable[..., Any]]()
    for rewrite in rewrites:
        replacements = (
            _replacements(rewrite, exclusions) if issubclass(rewrite, GraphRewrite) else {}
        )
        names |= dict.fromkeys(replacements, rewrite.name)
        table |= replacements
    involved = dict[str, None]()
    for rewrite in rewrites:
        if issubclass(rewrite, ProgramRewrite) and _edit(program, rewrite, exclusions, note):
            involved[rewrite.name] = None
    for site in _find_places(program, table):
        involved[names[site.target]] = None
        note(names[site.target], module_path(site.node.meta))
    if not involved:
        return program
    try:
        return _fold_constants(program.run_decompositions(table))
    except EtprofError:
        raise
    # PyTorch's passes raise anything for a graph that they do not expect.
    except Exception as error:
        problem = f"retracing with {', '.join(involved)} fails: {first_line(error)}"
        raise ExportError(f"{problem}; leave one out of --rewrite") from error


def _edit(
    program: torch.export.ExportedProgram,
    rewrite: type[ProgramRewrite],
    exclusions: Sequence[RewriteExclusion],
    note: Callable[[str, str], None],
) -> int:
    """Edits the graph in place; returns at how many nodes."""
    nodes = [
        node
        for node in rewrite.named(rewrite.find_places)(program)
        if not is_excluded(exclusions, rewrite.name, module_path(node.meta))
    ]
    for node in nodes:
        note(rewrite.name, module_path(node.meta))
        rewrite.named(rewrite.edit)(program, node)
    if nodes:
        program.graph.lint()
    return len(nodes)


def _replacements(
    rewrite: type[GraphRewrite], exclusions: Sequence[RewriteExclusion] = ()
) -> dict[Any, Callable[..., Any]]:
    """Returns what it replaces; a replacement that fails raises ExportError with its name."""
    replacements = rewrite.named(rewrite.replacements)()
    own_exclusions = [exclusion for exclusion in exclusions if exclusion.rewrite == rewrite.name]
    return {
        find_overload(name): _outside(own_exclusions, rewrite.named(put))
        for name, put in replacements.items()
    }


def _outside(exclusions: Sequence[RewriteExclusion], put: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `put` with the modules left alone that are excluded."""
    if not exclusions:
        return put

    @wraps(put)
    def put_unless_excluded(*args: object, **kwargs: object) -> object:
        # Retracing runs the graph node by node, and says which one in this global of PyTorch's.
        path = module_path(fx_traceback.get_current_meta())
        is_spared = any(is_excluded((rule,), rule.rewrite, path) for rule in exclusions)
        return NotImplemented if is_spared else put(*args, **kwargs)

    return put_unless_excluded


class _ReplacementSite(NamedTuple):
    """Where an operator would be replaced."""

    node: torch.fx.Node
    target: Any
    """The operator: the node's own, or one that a view is made of."""
    casts: frozenset[frozenset[torch.dtype]] = frozenset()
    """Pairs of types between which what is put there casts."""


def _find_places(
    program: torch.export.ExportedProgram, table: Mapping[Any, Callable[..., Any]]
) -> Iterator[_ReplacementSite]:
    """Yields where an operator would be replaced; tries it without data.

    Where that fails it raises ExportError, once the place has been yielded too.
    A view such as `chunk` or `expand_as` is made of other operators, and retracing meets those.
    """
    if not table:
        return

    def value_of(node: torch.fx.Node) -> Any:  # noqa: ANN401 - whatever it gives
        return node.meta.get("val")

    values = [value_of(node) for node in program.graph.nodes]
    with detect_fake_mode(values) or nullcontext(), fx_traceback.preserve_node_meta():
        for node in program.graph.nodes:
            if node.target not in table and not _is_composite_view(node.target):
                continue
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value_of)
            if node.target in table:
                try:
                    with fx_traceback.set_current_meta(node), _CastProbe() as casts:
                        result = table[node.target](*args, **kwargs)
                except ExportError:
                    yield _ReplacementSite(node, node.target)
                    raise
                if result is not NotImplemented:
                    yield _ReplacementSite(node, node.target, frozenset(casts.pairs))
            # To compute with symbols is to constrain them.
            elif _are_static((args, kwargs)):
                with fx_traceback.set_current_meta(node), _ReplacementProbe(table) as probe:
                    node.target(*args, **kwargs)
                yield from (
                    _ReplacementSite(node, target) for target in dict.fromkeys(probe.replaced)
                )


def _is_composite_view(target: object) -> bool:
    """Whether PyTorch's retracing makes other operators of it, whatever the table has.

    Composites that are no views, such as `linear`, it keeps.
    """
    return isinstance(target, torch._ops.OpOverload) and target.is_view and target._can_decompose()


def _are_static(values: object) -> bool:
    """Whether tensors and numbers, nested as arguments are, have known sizes and values."""
    return not any(
        isinstance(number, torch.SymInt)
        for value in torch.utils._pytree.tree_leaves(values)
        for number in (value.shape if isinstance(value, torch.Tensor) else (value,))
    )


class _CastProbe(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the types between which operators cast."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pairs = set[frozenset[torch.dtype]]()

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Notes the operator where it casts, and computes it as it is."""
        del types
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and args[0].dtype != result.dtype:
            self.pairs.add(frozenset((args[0].dtype, result.dtype)))
        return result


class _ReplacementProbe(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tries replacements on the operators that a composite one is made of."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.replaced: list[torch._ops.OpOverload] = []

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Notes the operator where it would be replaced, and computes it as it is."""
        del types
        kwargs = kwargs or {}
        if func in self.table and self.table[func](*args, **kwargs) is not NotImplemented:
            self.replaced.append(func)
        return func(*args, **kwargs)


def find_missed(
    program: torch.export.ExportedProgram, rewrites: Sequence[type[Rewrite]]
) -> MissedRewrites:
    """Returns what `rewrites`, which nobody requested, would replace in a traced program.

    Where one puts casts, those that keep these inside the delegate belong to it: without them what
    it takes in would bring two operators outside.
    """
    sound = [rewrite for rewrite in rewrites if rewrite.find_objection() is None]
    missed, failed = defaultdict[str, list[str]](list), dict[str, str]()
    for rewrite in sound:
        try:
            if issubclass(rewrite, ProgramRewrite):
                nodes = rewrite.named(rewrite.find_places)(program)
                reached = rewrite.named(rewrite.find_reached)(nodes)
                sites = [_ReplacementSite(node, None) for node in (*nodes, *reached)]
            else:
                table = _replacements(rewrite) if issubclass(rewrite, GraphRewrite) else {}
                sites = list(_find_places(program, table))
        except ExportError as error:
            failed[rewrite.name] = str(error)
            continue
        for site in sites:
            traced = find_traced(site.node)
            names = missed[traced[0] if traced else site.node.name]
            needed = [rule.name for rule in sound if rule.delegated_casts in site.casts]
            names += [name for name in (rewrite.name, *needed) if name not in names]
    return MissedRewrites(
        missed, [rewrite for rewrite in sound if rewrite.level != "graph"], failed
    )


def count_lowered(
    rewrites: Sequence[type[Rewrite]], methods: Iterable[LoweredMethod]
) -> Counter[str]:
    """Returns how many operators inside delegates each rewrite of the lowering has to do with."""
    nodes = [node for method in methods for delegate in method.delegates for node in delegate.nodes]
    lowering = [rewrite for rewrite in rewrites if rewrite.level == "lowering"]
    return Counter(
        rewrite.name
        for rewrite in lowering
        for node in nodes
        if rewrite.named(rewrite.matches)(node)
    )


def _fold_constants(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Computes what depends on constants alone; quantised weights stay as they are."""
    quantized_targets = {
        node.target
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        and node.target.namespace in ("quantized_decomposed", "torchao")
    }
    _rename_folded(program)
    _copy_in_order(program)
    folded: torch.export.ExportedProgram = upstream.constant_prop_pass(
        program, custom_skip_targets=quantized_targets
    )
    _store_in_order(folded)
    return folded


def _copy_in_order(program: torch.export.ExportedProgram) -> None:
    """Has copies of constants be such that ExecuTorch's pass folds: it knows no memory formats."""
    for node in find_constants(program):
        if node.target is torch.ops.aten.clone.default:
            node.target = torch.ops.aten.repeat.default
            node.args, node.kwargs = (node.args[0], [1] * node.meta["val"].dim()), {}


def _store_in_order(program: torch.export.ExportedProgram) -> None:
    """Stores what was folded element after element: ExecuTorch reads a transposed one with the wrong shape."""
    values = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        constant = program.constants.get(values.get(node.name) or "")
        if isinstance(constant, torch.Tensor) and not constant.is_contiguous():
            program.constants[values[node.name]] = constant.contiguous()
            node.meta["val"] = node.meta["val"].contiguous()


def _rename_folded(program: torch.export.ExportedProgram) -> None:
    """Gives constants of an earlier folding, which are buffers since, names that no later one has.

    The pass numbers its own anew and looks for a name among the constants alone; which of two
    tensors of one name a program gets is left to chance (constant_prop_pass.py of ExecuTorch 1.5.1).
    """
    state = program.state_dict
    for spec in program.graph_signature.input_specs:
        if spec.target in state and spec.target.startswith(_FOLDED):
            name = next(
                name
                for number in count()
                if (name := f"folded{number}{spec.target}") not in {*state, *program.constants}
            )
            state[name], spec.target = state.pop(spec.target), name
