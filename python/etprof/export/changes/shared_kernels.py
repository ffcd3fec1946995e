"""One-dimensional convolutions that share a kernel, such as the towers of a siamese net: a kernel for each.

ExecuTorch 1.5.1 gives a kernel of three dimensions a fourth in place, at each convolution that reads it
(backends/xnnpack/_passes/conv1d_unsqueeze_pass.py): the second one finds four, is taken for
two-dimensional, and the export fails. The delegate stores equal weights once, so that copies cost nothing.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

import torch
from torch.export.graph_signature import InputKind, TensorArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

_ATEN: Final = torch.ops.aten
_CONVOLUTIONS: Final = (
    _ATEN.conv1d.default,
    _ATEN.conv1d.padding,
    _ATEN.conv_transpose1d.default,
    _ATEN.convolution.default,
)
_KERNEL_RANK: Final = 3


def separate_kernels(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Gives every one-dimensional convolution but the first that reads a kernel one of its own.

    Changes the program in place, and returns it.
    """
    targets = {
        spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target
    }
    is_changed = False
    for kernel in list(program.graph.nodes):
        if kernel.name not in targets or kernel.meta["val"].dim() != _KERNEL_RANK:
            continue
        for reader in list(_readers(kernel))[1:]:
            copied = _copy_kernel(program, kernel, targets[kernel.name])
            reader.replace_input_with(kernel, copied)
            is_changed = True
    if is_changed:
        program.graph.lint()
        program.graph_module.recompile()
    return program


def _readers(kernel: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Yields what reads a kernel for a convolution: that itself, or what dequantises it for one."""
    for user in kernel.users:
        if (user.target in _CONVOLUTIONS and user.args[1] is kernel) or any(
            reader.target in _CONVOLUTIONS for reader in user.users
        ):
            yield user


def _copy_kernel(
    program: torch.export.ExportedProgram, kernel: torch.fx.Node, target: str
) -> torch.fx.Node:
    """Adds the same tensor to the program's inputs under another name; returns its node."""
    signature = program.graph_signature
    place, spec = next(
        (index, spec)
        for index, spec in enumerate(signature.input_specs)
        if spec.arg.name == kernel.name
    )
    tensors = program.state_dict if target in program.state_dict else program.constants
    used_names = {
        *program.state_dict,
        *program.constants,
        *(node.name for node in program.graph.nodes),
    }
    name = next(
        name for number in count(1) if (name := f"{target}_shared{number}") not in used_names
    )
    # Not the same object: what makes a module of the program again would take both for one.
    kernel_copy = tensors[target].detach().clone()
    if spec.kind is InputKind.PARAMETER:
        kernel_copy = torch.nn.Parameter(kernel_copy, requires_grad=False)
    tensors[name] = kernel_copy
    with program.graph.inserting_after(kernel):
        node: torch.fx.Node = program.graph.placeholder(f"{kernel.name}_{name.rpartition('_')[2]}")
    node.meta = kernel.meta.copy()
    copied = type(spec)(spec.kind, TensorArgument(node.name), name, spec.persistent)
    signature.input_specs.insert(place + 1, copied)
    return node
