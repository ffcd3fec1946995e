"""What a rewrite is: what it matches, what it puts there, why that is legal, what it rests on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec, TypeVar

from etprof.base.errors import ExportError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    import torch

Level = Literal["graph", "quantization", "lowering"]
Given = ParamSpec("Given")
Result = TypeVar("Result")


class Rewrite(ABC):
    """One change that keeps what a program computes, within what `legal` says."""

    name: ClassVar[str]
    """As `--rewrite` takes it."""
    level: ClassVar[Level]
    changes: ClassVar[str]
    """What becomes of what, in one sentence."""
    legal: ClassVar[str]
    """Why the outputs stay the same, or how far they do not."""
    rests_on: ClassVar[str]
    """The fact about ExecuTorch that makes it profitable, and its source."""
    gives_sme2_weights: ClassVar[bool] = False
    """Whether products get weights of it that SME2's kernels take, and had others."""
    delegated_casts: ClassVar[frozenset[torch.dtype]] = frozenset()
    """Types between which it keeps casts inside the delegate."""

    @classmethod
    def find_objection(cls) -> str | None:
        """Says why it is not sound with what is installed, or cannot be asked; None if it is."""
        try:
            return cls.find_problem()
        # In an ExecuTorch that nobody tried it on, asking may raise anything.
        except Exception as error:  # noqa: BLE001
            return f"asking whether it holds fails: {first_line(error)}"

    @classmethod
    def named(cls, step: Callable[Given, Result]) -> Callable[Given, Result]:
        """Returns `step` with its failures named: they raise ExportError."""

        @wraps(step)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            try:
                return step(*args, **kwargs)
            # It meets graphs, and an ExecuTorch, that nobody tried it on: anything may be raised.
            except Exception as error:
                msg = f"rewrite {cls.name} fails: {first_line(error)}; leave it out of --rewrite"
                raise ExportError(msg) from error

        return run

    @classmethod
    @abstractmethod
    def find_problem(cls) -> str | None:
        """Says why it is not sound with what is installed; None where all it rests on is there."""

    @classmethod
    def matches(cls, node: torch.fx.Node) -> bool:
        """Whether it would hand over this node of a lowered graph otherwise."""
        del node
        return False


class GraphRewrite(Rewrite):
    """Puts other operators in the place of one of ATen's, wherever its conditions hold."""

    level = "graph"
    precedes_quantization: ClassVar[bool] = True
    """Whether a quantiser should see the new operators; else they are made after it."""

    @classmethod
    def find_problem(cls) -> str | None:
        """Says which of the operators that it looks for PyTorch lacks."""
        return describe_missing(cls.replacements())

    @classmethod
    @abstractmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns what it replaces, such as `aten.gelu.default`, with what computes the same.

        Each takes the operator's own arguments, and may answer NotImplemented to leave them alone.
        """


class ProgramRewrite(Rewrite):
    """Changes a traced graph where several of its operators allow it together."""

    level = "graph"
    precedes_quantization: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def find_places(cls, program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
        """Returns the operators that it would change or take out; changes nothing."""

    @classmethod
    def find_reached(cls, nodes: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
        """Returns what the delegate takes because those places are changed, itself unchanged."""
        del nodes
        return []

    @classmethod
    @abstractmethod
    def edit(cls, program: torch.export.ExportedProgram, node: torch.fx.Node) -> None:
        """Changes the graph at one of them; new operators need no values, what is constant is folded."""


class QuantizationRewrite(Rewrite):
    """Changes what of a dynamically quantised graph gets fixed scales."""

    level = "quantization"

    @classmethod
    @abstractmethod
    def count(cls, module: torch.nn.Module) -> int:
        """Returns at how many operators of the quantised graph module it shows."""


def describe_missing(operators: Iterable[str]) -> str | None:
    """Says which operators PyTorch lacks; None where it has all of them."""
    missing = [name for name in operators if find_overload(name) is None]
    return f"PyTorch has no {', '.join(missing)}" if missing else None


def find_overload(name: str) -> torch._ops.OpOverload | None:
    """Returns PyTorch's operator called `namespace.operator.overload`; None when there is none."""
    import torch

    target: Any = torch.ops
    for component in name.split("."):
        target = getattr(target, component, None)
        if target is None:
            return None
    return target  # type: ignore[no-any-return]


def find_constants(
    program: torch.export.ExportedProgram, also: Container[torch.fx.Node] = ()
) -> set[torch.fx.Node]:
    """Returns the nodes whose values no input has a part in; quantised weights are not followed.

    Those in `also` are taken for constants, whatever they read.
    """
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    constants: set[torch.fx.Node] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            buffer = signature.inputs_to_buffers.get(node.name)
            parameters = {
                *signature.inputs_to_parameters,
                *signature.inputs_to_lifted_tensor_constants,
            }
            if node.name in parameters or (buffer is not None and buffer not in changed):
                constants.add(node)
        elif (
            node.op == "call_function"
            and _is_foldable(node)
            and (
                node in also or all(input_node in constants for input_node in node.all_input_nodes)
            )
        ):
            constants.add(node)
    return constants


def _is_foldable(node: torch.fx.Node) -> bool:
    """Whether it gives a tensor of a fixed size, and is no step of a quantisation."""
    import torch

    value = node.meta.get("val")
    is_own = getattr(node.target, "namespace", "") in {"aten", "prims"}
    is_fixed = isinstance(value, torch.Tensor) and all(isinstance(s, int) for s in value.shape)
    return is_own and is_fixed and not node.is_impure()
