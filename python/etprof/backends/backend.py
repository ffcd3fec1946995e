"""The one interface behind which each delegate's own words, units and kernels stand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from etprof.backends.kernel_names import SME_LEVELS

if TYPE_CHECKING:
    from etprof.backends.rewrite import Rewrite
    from etprof.run.delegation import DelegateNode


class OperatorClass(NamedTuple):
    """Where an operator's time is counted."""

    category: str
    """Headline category."""
    finer: str
    """Finer class below it."""


CATEGORIES: Final = ("Convolution", "GEMM", "Data Movement", "Elementwise", "Other")

UNKNOWN: Final = OperatorClass("Other", "unknown")
FRAMEWORK_OVERHEAD: Final = OperatorClass("Other", "framework overhead")
DELEGATE_OVERHEAD: Final = OperatorClass("Other", "delegate overhead")
ROUNDING: Final = OperatorClass("Other", "rounding")
"""What delegates round off their operators' times, which is no overhead."""

CONVOLUTION: Final = OperatorClass("Convolution", "convolution")
DECONVOLUTION: Final = OperatorClass("Convolution", "transposed convolution")
LINEAR: Final = OperatorClass("GEMM", "linear")
MATMUL: Final = OperatorClass("GEMM", "matrix product")
LAYOUT: Final = OperatorClass("Data Movement", "layout")
COPY: Final = OperatorClass("Data Movement", "copy")
VIEW: Final = OperatorClass("Data Movement", "view")
PACKING: Final = OperatorClass("Data Movement", "packing")
GATHER: Final = OperatorClass("Data Movement", "gather and scatter")
FILL: Final = OperatorClass("Data Movement", "fill")
CONVERT: Final = OperatorClass("Elementwise", "quantise and convert")
ARITHMETIC: Final = OperatorClass("Elementwise", "arithmetic")
ACTIVATION: Final = OperatorClass("Elementwise", "activation")
COMPARISON: Final = OperatorClass("Elementwise", "comparison and logic")
NORM: Final = OperatorClass("Other", "norm")
POOL: Final = OperatorClass("Other", "pool")
SOFTMAX: Final = OperatorClass("Other", "softmax")
REDUCTION: Final = OperatorClass("Other", "reduction")
RESIZE: Final = OperatorClass("Other", "resize")
SORT: Final = OperatorClass("Other", "sort and select")
TRANSFORM: Final = OperatorClass("Other", "Fourier transform")
RANDOM: Final = OperatorClass("Other", "random")
DISTANCE: Final = OperatorClass("Other", "distance")
RECURRENCE: Final = OperatorClass("Other", "recurrence")


@dataclass(frozen=True)
class OperatorName:
    """The parts of an operator's name in an ETDump."""

    base: str
    """The delegate's operator type without its brackets, or ATen name without overload."""
    data_types: tuple[str, ...]
    """The delegate's data types, such as ("QD8", "F32", "QC8W"); empty when not named."""
    microkernel_type: str | None
    """Such as "IGEMM"."""
    operator_class: OperatorClass

    @property
    def is_known(self) -> bool:
        """Whether the backend's table has this operator."""
        return self.operator_class != UNKNOWN

    @property
    def is_product(self) -> bool:
        """Whether it is a convolution or matrix product, where SME can matter."""
        return self.operator_class.category in {"Convolution", "GEMM"}


@dataclass(frozen=True)
class Reason:
    """Why SME was not taken, what could be done, and where that is known from."""

    code: str
    text: str
    source: str


@dataclass(frozen=True)
class SmeRoute:
    """Whether an operator runs on SME, and what says so; nothing turns `unknown` into yes."""

    answer: Literal["proven", "named", "excluded", "unknown"]
    """`proven`: calls were counted. `named`: its type, in this mode, has SME microkernels alone.
    `excluded`: it cannot, or did not. `unknown`: nothing tells."""
    reason: Reason | None = None
    """Of what is excluded."""

    @property
    def takes_sme(self) -> bool:
        """Whether calls or the name say that it runs on SME."""
        return self.answer in {"proven", "named"}


@dataclass(frozen=True)
class OperatorFacts:
    """What is known of one operator in one run."""

    name: OperatorName
    mode: str | None
    """The SME mode in force; None and any other word than sme2, sme1 and off is not known."""
    counted: frozenset[str | None] | None = None
    """Levels of the computing microkernels that were counted; None when nothing was counted."""

    @property
    def prove_sme(self) -> bool:
        """Whether a call of an SME microkernel was counted, whatever the name says."""
        return self.counted is not None and bool(SME_LEVELS & self.counted)


class Exporter:
    """What a backend does while a model is exported for it; the base is for none at all."""

    def make_partitioners(
        self,
        rules: Sequence[str],
        precisions: Sequence[str],
        *,
        per_operator: bool,
        rewrites: Collection[str] = (),
        outside: Collection[str] = (),
    ) -> list[Any]:
        """Returns ExecuTorch's partitioners, in their order; none without a delegate.

        Operators of the traced graph that are called as one of `outside` are left out.
        """
        del rules, precisions, per_operator, rewrites, outside
        return []

    def rewrites(self) -> Sequence[type[Rewrite]]:
        """Returns what can be changed in graphs, and in how they are handed to the delegate."""
        return ()

    def rewritten_lowering(
        self, names: Collection[str]
    ) -> AbstractContextManager[Mapping[str, int]]:
        """Has the lowering's rewrites called `names` in force inside the block.

        Yields what those have changed that no operator shows, by their names.
        """
        del names
        return nullcontext({})

    def collected_reasons(self) -> AbstractContextManager[Mapping[str, str]]:
        """Yields why nodes were left out, by name; they arrive while the block lowers a model."""
        return nullcontext({})

    def make_quantizer(
        self,
        *,
        per_channel: bool,
        dynamic: bool,
        may_quantize: Callable[[Any], bool],
        rewrites: Collection[str] = (),
    ) -> Any:  # noqa: ANN401 - torchao's
        """Returns the quantizer of PT2E that annotates what the delegate takes, of what it may.

        `rewrites` are those of the quantisation that were asked for.
        """
        raise NotImplementedError

    def quantizable_types(self) -> Collection[str]:
        """Returns ATen's names of the operators that it annotates."""
        return ()

    def read_delegate(
        self,
        blob: bytes,
        nodes: Sequence[Any],
        is_bookkeeping: Callable[[Any], bool],
    ) -> list[DelegateNode]:
        """Reads the delegate's own graph back; `nodes` are those of the model that are in it.

        What work the nodes do is told later. Bookkeeping only picks a result or (de)quantises, sharing its operator's handle.
        """
        del blob, nodes, is_bookkeeping
        return []

    def find_refused(self, said: str, nodes: Sequence[DelegateNode]) -> list[DelegateNode]:
        """Returns the nodes that the runtime's error is about; none where it does not say."""
        del said, nodes
        return []

    def weight_bytes(self, blob: bytes) -> int | None:
        """Returns how many bytes of constants the delegate reads; None where it does not say."""
        del blob
        return None


class Backend:
    """A delegate of which nothing is known: its calls are opaque. Known ones override this."""

    name: str = "unknown"
    """As `--backend` takes it and file names hold it."""
    title: str = "an unknown delegate"
    """In sentences."""
    delegate: str | None = None
    """As programs call it; None for ExecuTorch's own kernels."""
    log_tag: str | None = None
    """Under which it writes to Android's log; None when it does not."""
    ns_per_tick: float | None = None
    """Of the times that it reports; None when their unit is not known."""
    clock_step_ns: float = 0
    """Its times are multiples of this, rounded down."""
    starts_are_synthetic: bool = False
    """Whether only the durations that it reports are measured."""
    products: frozenset[str] = frozenset()
    """Kinds that multiply: in alignment, each is paired with its equal only."""
    quantizes: bool = False
    """Whether it runs integer programs."""
    has_rules: bool = False
    """Whether its partitioner can be told what to take."""
    neutral_kinds: frozenset[str] = frozenset()
    """Kinds that treat every element alike, whatever the layout."""

    inexact_rewrites: frozenset[str] = frozenset()
    """Rewrites of its programs that round more than what they replace, so that outputs may be worse."""

    library: str | None = None
    """The installed library that holds it; None where its instructions cannot be told apart."""
    entry_symbol: str = ""
    """In that library, part of the symbol at which a delegate call begins."""
    border: str = ""
    """What it calls before the first operator of a call and after each."""
    run_symbol: str = ""
    """The function within it that runs a delegate call's operators."""
    parallel_prefix: str = ""
    """Of the functions that hand an operator's work to its thread pool."""

    def recognises(self, labels: Collection[str]) -> bool:
        """Whether the labels of one delegate call are in this delegate's words."""
        return not labels

    def read_label(self, label: str) -> OperatorName:
        """Takes an operator's label apart."""
        return OperatorName(label, (), None, UNKNOWN)

    def plain_types(self, data_types: Sequence[str]) -> tuple[str, ...]:
        """Replaces the types of SME's routes by those of the same operator without SME."""
        return tuple(data_types)

    def computes_in(self, data_types: Sequence[str]) -> str | None:
        """Returns the precision whose peak bounds an operator of these types; None if not known."""
        del data_types
        return None

    def sme_route(self, facts: OperatorFacts) -> SmeRoute:
        """Says whether the operator runs on SME: the one place that answers."""
        return SmeRoute("proven" if facts.prove_sme else "unknown")

    def row_kind(self, base: str, microkernel_type: str | None) -> str:
        """Returns the kind of an operator that ran, comparable with `node_kind`."""
        del microkernel_type
        return self.node_kind(base)

    def node_kind(self, text: str) -> str:
        """Returns the kind of a node of the delegate's own graph."""
        return text.lower()

    def loose_kind(self, kind: str) -> str:
        """Returns the kind as which an operator of this one may run too."""
        return kind

    def exporter(self) -> Exporter:
        """Returns its part of the export; imports what it needs of ExecuTorch only now."""
        return Exporter()

    def describe_source(self) -> str | None:
        """Says what its predictions rest on, with the revision; None when it makes none."""
        return None
