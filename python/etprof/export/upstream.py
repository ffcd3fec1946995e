"""The importer of ExecuTorch's export code, and of torchao's: others take it from here."""

from __future__ import annotations

import copy
import functools
import re
import traceback
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import torch

from etprof.base.upstream_noise import quiet_upstream
from etprof.export.stages import is_standard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

with quiet_upstream():
    import executorch.kernels.quantized  # registers the forms of q/dq operators that programs use
    import executorch.version
    from executorch.devtools import BundledProgram
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.serialize import (
        serialize_from_bundled_program_to_flatbuffer,
    )
    from executorch.devtools.intermediate_output_tap import (
        FULL_TENSOR,
        strip_taps_,
        tap_intermediate_outputs_,
    )
    from executorch.exir import (
        EdgeCompileConfig,
        EdgeProgramManager,
        ExecutorchBackendConfig,
        ExecutorchProgramManager,
        to_edge_transform_and_lower,
    )
    from executorch.exir._serialize._program import deserialize_pte_binary
    from executorch.exir.backend.utils import format_delegated_graph
    from executorch.exir.dialects._ops import ops as edge_operators
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy, naive
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.constant_prop_pass import constant_prop_pass
    from executorch.exir.passes.external_constants_pass import (
        delegate_external_constants_pass_unlifted,
    )
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
    from executorch.exir.passes.quant_fusion_pass import QuantFusionPass
    from executorch.exir.passes.quant_fusion_pass import (
        _get_node_value_dict as constants_of,
    )
    from executorch.exir.serde.export_serialize import (
        _SERIALIZE_TO_TORCH_DTYPE as SERIALIZED_DTYPES,
    )
    from torchao.quantization import (
        Int8DynamicActivationIntxWeightConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import ComposableQuantizer
    from torchao.utils import TorchAOBaseTensor as TorchAOTensor

PYTORCH_FILE: Final = re.compile(r"[/\\](torch|torchao)[/\\]")
"""In paths of PyTorch's own files."""
_INSTALLED: Final = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\]+)")
EDGE_CAST = edge_operators.edge.dim_order_ops._to_dim_order_copy.default
"""Changes the element type of a tensor in a lowered graph."""


@contextmanager
def without_waste() -> Iterator[None]:
    """Keeps passes from repeating what changes no program: a fifth to a third of an export.

    Each pass formats the whole graph for a log that nobody reads, copies every node's history with
    all that came before it, and asks PyTorch for its operators once a namespace. A version that has
    no such place is left alone.
    """
    history = SimpleNamespace(copy=copy.copy, deepcopy=list)
    with ExitStack() as changed:
        changed.enter_context(
            patch.object(torch.fx.GraphModule, "print_readable", lambda *_, **__: "")
        )
        if hasattr(torch.fx.traceback, "copy"):
            changed.enter_context(patch.object(torch.fx.traceback, "copy", history))
        utilities, ask = torch._export.utils, "_materialize_cpp_cia_ops"
        if hasattr(utilities, ask):
            once = functools.cache(getattr(utilities, ask))
            changed.enter_context(patch.object(utilities, ask, once))
        yield


@contextmanager
def lines_of_helpers() -> Iterator[None]:
    """Keeps the line of a function that `forward` calls as the line that an operator is from.

    PyTorch keeps the frames of functions named `forward` alone (torch/fx/proxy.py of 2.13,
    `_filter_traceback_frames`): a norm in a method of its own was the line that calls it.
    """
    tracer, name = torch.fx.proxy.TracerBase, "_filter_traceback_frames"
    original = getattr(tracer, name, None)
    if original is None:
        yield
        return

    def keep(traced: object, stack: traceback.StackSummary) -> traceback.StackSummary:
        frames = list(original(traced, stack))
        helper = _innermost_helper(stack, frames)
        if helper is None:
            return traceback.StackSummary.from_list(frames)
        kept = {id(frame) for frame in (*frames, helper)}
        return traceback.StackSummary.from_list([frame for frame in stack if id(frame) in kept])

    with patch.object(tracer, name, keep):
        yield


def _innermost_helper(
    stack: Sequence[traceback.FrameSummary], frames: Sequence[traceback.FrameSummary]
) -> traceback.FrameSummary | None:
    """Returns the innermost frame below a model's own `forward` that is of the same code as it.

    A function of another package, such as of einops, is no line that a model's author may change.
    """
    own = [frame for frame in frames if not PYTORCH_FILE.search(frame.filename)]
    if not own:
        return None
    start = next(index for index, frame in enumerate(stack) if frame is own[-1])
    below = [
        frame
        for frame in stack[start + 1 :]
        if not PYTORCH_FILE.search(frame.filename)
        and _code_of(frame.filename) == _code_of(own[-1].filename)
    ]
    return below[-1] if below else None


def _code_of(filename: str) -> str:
    """Returns the installed package that a file is of; `python` for the language's own, else nothing."""
    installed = _INSTALLED.search(filename)
    if installed is not None:
        return installed[1]
    return "python" if is_standard(filename) else ""


EXECUTORCH_VERSION: str = executorch.version.__version__
EXECUTORCH_REVISION: str = executorch.version.git_version or "unknown"
"""The commit that the package was built from."""
TORCH_VERSION: str = torch.__version__
