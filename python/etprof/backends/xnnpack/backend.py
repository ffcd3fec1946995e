"""XNNPACK, ExecuTorch's delegate for CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.backends.backend import Backend, OperatorFacts, OperatorName, SmeRoute
from etprof.backends.xnnpack import labels, sme

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from etprof.backends.backend import Exporter


class XnnpackBackend(Backend):
    """XNNPACK's words, units and microkernels."""

    name = "xnnpack"
    title = "XNNPACK"
    delegate = "XnnpackBackend"
    log_tag = "XNNPACK"
    library = "libexecutorch_backend_xnnpack.so"
    entry_symbol = "XnnpackBackend7execute"
    border = "clock_gettime"
    run_symbol = "xnn_invoke_runtime"
    parallel_prefix = "pthreadpool_parallelize_"
    ns_per_tick = 1.0
    clock_step_ns = 1000
    starts_are_synthetic = True
    quantizes = True
    has_rules = True
    products = labels.PRODUCT_KINDS
    neutral_kinds = labels.NEUTRAL_KINDS
    inexact_rewrites = frozenset({"half_activations", "static_convolutions", "whole_powers"})

    def recognises(self, labels_of_call: Collection[str]) -> bool:
        """Whether any label names one of its operators; it has names for every one of its own."""
        return any(labels.parse_label(label).is_known for label in labels_of_call)

    def read_label(self, label: str) -> OperatorName:
        """Reads a label such as `Softmax (NC, F32) #1`."""
        return labels.parse_label(label)

    def plain_types(self, data_types: Sequence[str]) -> tuple[str, ...]:
        """Replaces packed types."""
        return sme.plain_types(data_types)

    def computes_in(self, data_types: Sequence[str]) -> str | None:
        """Products of integers are computed as int8, whatever their inputs and outputs are."""
        types = [name.removeprefix("P") for name in data_types]
        if any(name.startswith("Q") for name in types):
            return "int8"
        return next(({"F16": "fp16", "F32": "fp32"}.get(name) for name in types), None)

    def sme_route(self, facts: OperatorFacts) -> SmeRoute:
        """Asks the table of packed types, and the reasons."""
        return sme.sme_route(facts)

    def row_kind(self, base: str, microkernel_type: str | None) -> str:
        """Depthwise convolutions are a kind of their own."""
        is_depthwise = microkernel_type in labels.DEPTHWISE_MICROKERNELS
        return "depthwise" if is_depthwise else labels.canonical_kind(base)

    def node_kind(self, text: str) -> str:
        """Makes one word of a node's kind."""
        return labels.canonical_kind(text)

    def loose_kind(self, kind: str) -> str:
        """A depthwise convolution of more than 25 taps runs as any other does (`IGEMM`)."""
        return "product" if kind == "depthwise" else kind

    def exporter(self) -> Exporter:
        """Imports ExecuTorch's exporting code for XNNPACK, which takes seconds."""
        from etprof.backends.xnnpack.exporting import XnnpackExporter

        return XnnpackExporter()

    def describe_source(self) -> str:
        """Names the library whose microkernels the table lists."""
        return sme.describe_source()
