"""Makes the .pte files that the native tests run, with inputs and the outputs PyTorch gives.

usage: make_programs.py FOLDER. Nothing is done when FOLDER already holds what this file makes.
"""

from __future__ import annotations

import gc
import hashlib
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
    from torch import Tensor, nn
    from torch.export import ExportedProgram


def stamp_text() -> str:
    """What the files depend on: this script and the versions of what exports."""
    try:
        packages = " ".join(f"{name}=={version(name)}" for name in ("executorch", "torch"))
    except PackageNotFoundError as error:
        msg = (
            f"the native tests export their programs with {error.name}, which {sys.executable} "
            "does not have: activate the virtual environment where etprof is installed, and "
            "configure again with --fresh"
        )
        raise SystemExit(msg) from error
    return f"{packages} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}\n"


def write_tensors(folder: Path, stem: str, tensors: tuple[Tensor, ...]) -> None:
    """Raw little-endian values, as the runner reads and writes them."""
    import torch

    for index, tensor in enumerate(tensors):
        flat = tensor.detach().contiguous().flatten()
        (folder / f"{stem}_{index}.bin").write_bytes(bytes(flat.view(torch.uint8).numpy()))


def lower(
    module: nn.Module | dict[str, nn.Module],
    example: tuple[object, ...],
    *,
    xnnpack: bool = False,
    dynamic_shapes: dict[str, Any] | None = None,
    config: Mapping[str, object] | None = None,
) -> ExecutorchProgramManager:
    """Exports to an ExecuTorch program; `config` is for ExecutorchBackendConfig."""
    import torch
    from executorch.exir import ExecutorchBackendConfig, to_edge

    def export(one: nn.Module) -> ExportedProgram:
        return torch.export.export(one, example, dynamic_shapes=dynamic_shapes)

    named = module if isinstance(module, dict) else {"forward": module}
    methods = {name: export(one) for name, one in named.items()}
    # to_edge takes less time than to_edge_transform_and_lower, which decomposes everything twice.
    edge = lower_to_xnnpack(methods) if xnnpack else to_edge(methods)
    return edge.to_executorch(ExecutorchBackendConfig(**(config or {})))


def make_modules() -> dict[str, nn.Module]:
    """The modules that are exported, by name."""
    import torch
    from torch import nn

    class Convolutions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 16, 3, padding=1)
            self.linear = nn.Linear(16, 10)

        def forward(self, image: Tensor) -> Tensor:
            scores: Tensor = self.linear(self.convolution(image).relu().mean((2, 3)))
            return scores

    class Scaled(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    class Mixed(nn.Module):
        def forward(self, mask: Tensor, numbers: Tensor, shift: int, on: bool) -> Tensor:
            return torch.where(mask, numbers + shift, numbers) if on else numbers

    class Copies(nn.Module):
        def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
            return tuple(torch.cat((tensor, tensor)) for tensor in tensors)

    class Logarithm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.log(x)

    class NoInputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("numbers", torch.arange(4.0))
            self.numbers: Tensor

        def forward(self) -> Tensor:
            return self.numbers * 2

    class Corner(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            return image[:, :, :1, :1] + 1

    class Scalars(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[object, ...]:
            return x * 2, x.shape[0], y.item(), True, None

    return {
        "no_inputs": NoInputs(),
        "corner": Corner(),
        "scalars": Scalars(),
        "convolutions": Convolutions().eval(),
        "mlp": nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).eval(),
        "embedding": nn.Embedding(10, 4).eval(),
        "twice": Scaled(2.0),
        "thrice": Scaled(3.0),
        "mixed": Mixed(),
        "copies": Copies(),
        "logarithm": Logarithm(),
    }


def lower_to_xnnpack(methods: dict[str, ExportedProgram]) -> EdgeProgramManager:
    """Gives all that it can to the delegate."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    return to_edge_transform_and_lower(methods, partitioner=[XnnpackPartitioner()])


def save(folder: Path, name: str, program: ExecutorchProgramManager) -> None:
    (folder / f"{name}.pte").write_bytes(program.buffer)


def make_float_programs(folder: Path, modules: dict[str, nn.Module]) -> None:
    """XNNPACK in both precisions, portable kernels, dynamic shapes, non-finite outputs."""
    import torch

    image = torch.rand(1, 3, 16, 16)
    convolutions = modules["convolutions"]
    save(folder, "convolutions_fp32", lower(convolutions, (image,), xnnpack=True))
    write_tensors(folder, "convolutions_fp32_input", (image,))
    write_tensors(folder, "convolutions_fp32_expected", (convolutions(image),))
    convolutions.half()
    save(folder, "convolutions_fp16", lower(convolutions, (image.half(),), xnnpack=True))

    row = torch.rand(1, 8)
    save(folder, "mlp", lower(modules["mlp"], (row,)))
    write_tensors(folder, "mlp_input", (row,))
    write_tensors(folder, "mlp_expected", (modules["mlp"](row),))
    rows = torch.rand(4, 8)
    batch = {"input": {0: torch.export.Dim("batch", min=1, max=4)}}
    save(folder, "dynamic", lower(modules["mlp"], (rows,), dynamic_shapes=batch))
    save(folder, "unplanned", lower(modules["twice"], (row,), config=unplanned_config()))
    save(folder, "logarithm", lower(modules["logarithm"], (row,)))
    save(folder, "corner", lower(modules["corner"], (torch.rand(1, 3, 224, 224),)))


def unplanned_config() -> dict[str, object]:
    """Inputs and outputs in the caller's memory."""
    from executorch.exir.passes import MemoryPlanningPass

    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    return {"memory_planning_pass": planning}


def make_other_programs(folder: Path, modules: dict[str, nn.Module]) -> None:
    """Other dtypes, values that are no tensors, several methods, weights in a file of their own."""
    import torch

    indices = torch.tensor([[1, 9, 0]])
    save(folder, "embedding", lower(modules["embedding"], (indices,)))
    write_tensors(folder, "embedding_input", (indices,))
    write_tensors(folder, "embedding_expected", (modules["embedding"](indices),))
    write_tensors(folder, "embedding_out_of_range", (torch.tensor([[1, 1000, 0]]),))

    dtypes = ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float64", "bool")
    tensors = tuple(torch.tensor([1, 0, 1]).to(getattr(torch, dtype)) for dtype in dtypes)
    save(folder, "dtypes", lower(modules["copies"], tensors))
    write_tensors(folder, "dtypes_input", tensors)
    write_tensors(folder, "dtypes_expected", modules["copies"](*tensors))

    mixed = (torch.tensor([True, False]), torch.tensor([10, 20], dtype=torch.int32), 5, True)
    save(folder, "mixed", lower(modules["mixed"], mixed))
    write_tensors(folder, "mixed_input", mixed[:2])
    write_tensors(folder, "mixed_expected", (modules["mixed"](*mixed),))

    save(folder, "no_inputs", lower(modules["no_inputs"], ()))
    write_tensors(folder, "no_inputs_expected", (modules["no_inputs"](),))
    rows = {"x": {0: torch.export.Dim("rows", min=1, max=4)}, "y": {}}
    values = (torch.rand(3, 3), torch.tensor(0.25))
    save(folder, "scalars", lower(modules["scalars"], values, dynamic_shapes=rows))
    write_tensors(folder, "scalars_input", (torch.rand(2, 3), torch.tensor(0.25)))

    methods = {"forward": modules["twice"], "thrice": modules["thrice"]}
    save(folder, "two_methods", lower(methods, (torch.rand(1, 8),)))

    external = lower(modules["mlp"], (torch.rand(1, 8),), config={"external_constants": True})
    save(folder, "external", external)
    external.write_tensor_data_to_file(str(folder))


def make_language_models() -> dict[str, nn.Module]:
    """Models whose next token is the sum of all tokens, times their places from 1, modulo 16."""
    import torch
    from torch import nn

    class Summing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(16))
            self.cache: Tensor

        def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
            self.cache[positions] = tokens[0].float()
            known = torch.arange(16) <= positions[-1]
            places = torch.arange(1, 17)
            target = torch.where(known, self.cache * places, 0.0).sum() % 16
            return -(torch.arange(16) - target).abs()[None]

    class AllScores(nn.Module):
        """As ExecuTorch's own: takes the first position, and scores every token it is given."""

        def __init__(self) -> None:
            super().__init__()
            self.model = Summing()

        def forward(self, tokens: Tensor, start: Tensor) -> Tensor:
            last: Tensor = self.model(tokens, torch.arange(tokens.shape[1]) + start)
            is_last = torch.arange(tokens.shape[1]) == tokens.shape[1] - 1
            return (last * is_last[:, None])[None]

    class Counting(Summing):
        """Remembers how often it was called, whatever the position."""

        def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
            self.cache += 1
            return -(torch.arange(16) - self.cache).abs()[None] + tokens.sum() * positions.sum() * 0

    class NotANumber(Summing):
        def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
            scores: Tensor = torch.log(super().forward(tokens, positions) - 1)
            return scores

    return {
        "summing": Summing(),
        "all_scores": AllScores(),
        "counting": Counting(),
        "not_a_number": NotANumber(),
    }


def lower_language_model(
    methods: Mapping[str, tuple[nn.Module, int]],
    *,
    each: bool = True,
    share: bool = False,
    dynamic: bool = False,
) -> ExecutorchProgramManager:
    """Exports methods of so many tokens, with a position for `each` or one for the first."""
    import torch
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import MemoryPlanningPass

    def export(module: nn.Module, count: int) -> ExportedProgram:
        inputs = (torch.ones(1, count, dtype=torch.long), torch.arange(count if each else 1))
        shapes: Any = ({1: torch.export.Dim("tokens", min=1, max=8)}, {}) if dynamic else None
        return torch.export.export(module, inputs, dynamic_shapes=shapes)

    edge = to_edge(
        {name: export(*what) for name, what in methods.items()},
        constant_methods={"get_max_seq_len": 16, "use_kv_cache": True},
    )
    planning = MemoryPlanningPass(share_mutable_buffers=share)
    return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))


def make_language_programs(folder: Path) -> None:
    """Two methods with one cache or two, one method of fixed or dynamic length, and odd ones."""
    models = make_language_models()
    summing = models["summing"]
    both = {"prefill": (summing, 4), "decode": (summing, 1)}
    save(folder, "lm_shared", lower_language_model(both, share=True))
    save(folder, "lm_unshared", lower_language_model(both))
    one = lower_language_model({"forward": (models["all_scores"], 5)}, each=False, dynamic=True)
    save(folder, "lm_dynamic", one)
    step = lower_language_model({"forward": (models["all_scores"], 1)}, each=False)
    save(folder, "lm_step", step)
    for name in ("counting", "not_a_number"):
        save(folder, f"lm_{name}", lower_language_model({"forward": (models[name], 1)}))


def make_unloadable_programs(folder: Path) -> None:
    """Programs that ask for what no runner has, by renaming in place."""
    changes: list[tuple[str, str, Callable[[bytes], bytes]]] = [
        ("mlp", "missing_operator", lambda data: data.replace(b"aten::tanh", b"aten::tanq")),
        ("mlp", "llm_operator", lambda data: data.replace(b"aten::tanh", b"llama::tan")),
        (
            "convolutions_fp32",
            "missing_backend",
            lambda data: data.replace(b"XnnpackBackend", b"UnknownBackend"),
        ),
    ]
    for source, name, change in changes:
        original = (folder / f"{source}.pte").read_bytes()
        changed = change(original)
        if changed == original:
            msg = f"{source}.pte does not hold the name that {name}.pte renames"
            raise SystemExit(msg)
        (folder / f"{name}.pte").write_bytes(changed)


def main(folder: Path) -> None:
    stamp_path, stamp = folder / "stamp.txt", stamp_text()
    if stamp_path.exists() and stamp_path.read_text() == stamp:
        return
    import torch

    # A fifth of the time would go into looking for garbage among a few short-lived graphs.
    gc.disable()
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    modules = make_modules()
    make_float_programs(folder, modules)
    make_other_programs(folder, modules)
    make_language_programs(folder)
    make_unloadable_programs(folder)
    stamp_path.write_text(stamp)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
