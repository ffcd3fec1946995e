"""What a backend does while a model is exported for it; the base is for none at all."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import torch

    from etprof.run.delegation import DelegateNode


class Exporter:
    """The export's part of a backend."""

    def make_partitioners(
        self, rules: Sequence[str], precisions: Sequence[str], *, per_operator: bool
    ) -> list[Any]:
        """Returns ExecuTorch's partitioners, in their order; none without a delegate."""
        del rules, precisions, per_operator
        return []

    def collected_reasons(self) -> AbstractContextManager[Mapping[str, str]]:
        """Yields why nodes were left out, by name; they arrive while the block lowers a model."""
        return nullcontext({})

    def make_quantizer(self, *, per_channel: bool, dynamic: bool) -> Any:  # noqa: ANN401 - torchao's
        """Returns the quantizer of PT2E that annotates what the delegate takes."""
        raise NotImplementedError

    def read_delegate(
        self,
        blob: bytes,
        nodes: Sequence[torch.fx.Node],
        is_bookkeeping: Callable[[torch.fx.Node], bool],
    ) -> list[DelegateNode]:
        """Reads the delegate's own graph back; `nodes` are those of the model that are in it.

        What work the nodes do is told later. Bookkeeping only picks a result or (de)quantises, sharing its operator's handle.
        """
        del blob, nodes, is_bookkeeping
        return []
