"""What ExecuTorch does with the value of each setting of an LLM export.

Read from ExecuTorch 1.5.1: examples/models/llama/export_llama_lib.py, model.py beside it,
llama3_2_vision/text_decoder/model.py, extension/llm/export/builder.py and quantizer_lib.py. A
setting that is not here is refused where a YAML has it: nobody has looked at what becomes of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from etprof.backends.registry import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class SettingUse:
    """What becomes of a setting's value."""

    kind: Literal["value", "file", "library", "tasks", "refused"]
    says: str
    """Of a file: how it is read. Of what is refused: why."""


VALUE: Final = SettingUse("value", "a number, a choice, or a text that is compared or counted")
_JSON: Final = SettingUse("file", "JSON")
_TENSORS: Final = SettingUse("file", "tensors and plain containers; no pickle is run")
_TOKENIZER: Final = SettingUse("file", "a tokenizer")
LIBRARY: Final = SettingUse("library", "a native library that is loaded, so that its code runs")
_TASKS: Final = SettingUse("tasks", "names of lm_eval's own tasks")
_COMPILER: Final = SettingUse(
    "refused", "words for another backend's compiler, which would be started"
)

TASK_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
"""lm_eval takes paths of YAML files too, which may name Python functions."""


def _values(*names: str) -> dict[str, SettingUse]:
    return dict.fromkeys(names, VALUE)


USES: Final[Mapping[str, Mapping[str, SettingUse]]] = {
    "llmconfig": _values(
        "base", "model", "export", "debug", "multimethod", "quantization", "backend"
    ),
    "loraconfig": {
        **_values("lora_rank", "lora_alpha", "target_modules", "adapter_quant"),
        "adapter_checkpoint": _TENSORS,
        "adapter_config": _JSON,
    },
    "baseconfig": {
        **_values("model_class", "lora_config", "metadata", "use_lora"),
        **_values("preq_mode", "preq_group_size", "preq_embedding_quantize"),
        "params": _JSON,
        # torch.load: of llama3_2_vision with weights_only=False, which the child's environment overrules.
        "checkpoint": _TENSORS,
        "tokenizer_path": _TOKENIZER,
    },
    "modelconfig": {
        **_values("dtype_override", "enable_dynamic_shape", "use_shared_embedding"),
        **_values("use_sdpa_with_kv_cache", "expand_rope_table", "use_attention_sink"),
        **_values("use_kv_cache", "quantize_kv_cache", "static_quantize_kv_cache"),
        **_values("static_quantize_kv_cache_scale", "local_global_attention"),
        **_values("use_moe_quantized_op"),
        "output_prune_map": _JSON,
        "input_prune_map": _JSON,
    },
    "exportconfig": {
        **_values("max_seq_length", "max_context_length"),
        "output_dir": SettingUse("refused", "--outdir names the folder"),
        "output_name": SettingUse("refused", "-o names the program"),
        "so_library": LIBRARY,
        "export_only": SettingUse("refused", "then there is no program to measure"),
        "foundation_weights_file": SettingUse("refused", "weights stay in the program"),
        "lora_weights_file": SettingUse("refused", "weights stay in the program"),
    },
    "debugconfig": {
        **_values("generate_etrecord", "generate_full_logits", "verbose"),
        "profile_path": SettingUse("refused", "`etprof export --trace` draws an export's time"),
        "profile_memory": SettingUse("refused", "`etprof export --trace` draws a memory plan"),
    },
    "methodconfig": _values("method_name", "lora_config", "export_seq_len"),
    "multimethodconfig": _values("methods", "share_mutable_buffers"),
    "quantizationconfig": {
        **_values("qmode", "embedding_quantize", "pt2e_quantize", "group_size", "use_spin_quant"),
        **_values("use_qat", "quantize_scope", "use_hqq"),
        **_values("calibration_limit", "calibration_seq_length", "calibration_data"),
        "calibration_tasks": _TASKS,
    },
    "backendconfig": _values(
        *(DEFAULT, "coreml", "vulkan", "qnn", "openvino", "torchao", "tosa", "ethosu", "vgf"),
        "mlx",
    ),
    f"{DEFAULT}config": _values("enabled", "extended_ops", "enable_bf16"),
    # Of the other backends none can be enabled, so nothing reads a value of these.
    "coremlconfig": _values(
        "enabled", "enable_state", "preserve_sdpa", "quantize", "ios", "compute_units"
    ),
    "vulkanconfig": _values("enabled", "force_fp16"),
    "qnnconfig": {
        **_values("enabled", "use_sha", "soc_model", "use_qnn_sha", "num_sharding"),
        "optimized_rotation_path": SettingUse("refused", "a file of another backend"),
    },
    "openvinoconfig": _values(
        "enabled", "device", "nncf_compression_group_size", "openvino_awq",
        "openvino_scale_estimation",
    ),
    "torchaokernelsconfig": _values(
        "use_torchao_kernels_linear", "use_torchao_kernels_tied_embedding"
    ),
    "tosaconfig": _values("enabled", "version"),
    "ethosuconfig": {
        **_values("enabled", "target", "memory_mode", "system_config"),
        "extra_flags": _COMPILER,
    },
    "vgfconfig": {
        **_values("enabled", "compile_spec", "quantize_scope"),
        "compiler_flags": _COMPILER,
    },
    "mlxconfig": _values("enabled"),
}  # fmt: skip
"""By the declaring class, in small letters, and the field, for some classes stand at several places of a YAML."""


def find_use(kind: type, name: str) -> SettingUse | None:
    """Returns what becomes of a class's field; None for one that nobody has classified."""
    return USES.get(kind.__name__.lower(), {}).get(name)
