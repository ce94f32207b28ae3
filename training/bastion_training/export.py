"""Step 5: the drafter as a GGUF file that BASTION and llama.cpp load. Needs no PyTorch."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from .config import DrafterConfig
from .errors import UserError

ARCHITECTURE = "dflash"
TYPES = {name: gguf.GGMLQuantizationType[name.upper()]
         for name in ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")}


def tensor_names(layers: int) -> dict[str, str]:
    """Parameter of the module -> tensor of the file. `d2t` comes on top."""
    names = {"fc.weight": "fc.weight", "hidden_norm.weight": "enc.output_norm.weight",
             "output_norm.weight": "output_norm.weight", "output.weight": "output.weight"}
    parts = ("attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm", "attn_q", "attn_k", "attn_v", "attn_output",
             "ffn_gate", "ffn_up", "ffn_down")
    names.update({f"blk.{i}.{part}.weight": f"blk.{i}.{part}.weight" for i in range(layers) for part in parts})
    return names


def write(path: Path, config: DrafterConfig, parameters: dict[str, np.ndarray], target: Path, matrix_type: str,
          head_type: str, about: dict[str, str]) -> None:
    """Writes `parameters` (float32, by the module's names) to `path`; the tokenizer comes from the target's file.

    `about`: values of `general.*` keys (name, license, description, ...).
    """
    names = tensor_names(config.layers)
    if set(names) != set(parameters):
        raise UserError(f"the checkpoint's parameters do not fit: {sorted(set(names) ^ set(parameters))}")
    fresh = path.with_name(path.name + ".new")
    out = gguf.GGUFWriter(fresh, ARCHITECTURE)
    for key, value in about.items():
        out.add_string(f"general.{key}", value)
    out.add_block_count(config.layers)
    out.add_context_length(config.context)
    out.add_embedding_length(config.hidden)
    out.add_feed_forward_length(config.ffn)
    out.add_head_count(config.heads)
    out.add_head_count_kv(config.kv_heads)
    out.add_key_length(config.head_dim)
    out.add_value_length(config.head_dim)
    out.add_rope_freq_base(config.rope_base)
    out.add_rope_dimension_count(config.head_dim)
    out.add_layer_norm_rms_eps(config.eps)
    out.add_vocab_size(config.vocabulary)
    out.add_uint32(f"{ARCHITECTURE}.block_size", config.block)
    out.add_array(f"{ARCHITECTURE}.target_layers", config.taps)
    copy_tokenizer(out, target)
    out.add_mask_token_id(config.mask_token)
    for parameter, name in names.items():
        values = np.ascontiguousarray(parameters[parameter], np.float32)
        chosen = TYPES["f32" if values.ndim == 1 else head_type if name == "output.weight" else matrix_type]
        out.add_tensor(name, gguf.quants.quantize(values, chosen), raw_dtype=chosen)
    out.add_tensor("d2t", np.asarray(config.draft_ids, np.int64))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    fresh.replace(path)


def copy_tokenizer(out: gguf.GGUFWriter, target: Path) -> None:
    for key, field in gguf.GGUFReader(target).fields.items():
        if not key.startswith("tokenizer.") or key == "tokenizer.ggml.mask_token_id":
            continue
        kind = field.types[0]
        out.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def read(path: Path) -> tuple[DrafterConfig, dict[str, np.ndarray]]:
    """A file that `write` wrote, dequantised."""
    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as GGUF: {error}") from None

    def key(name: str):
        field = reader.get_field(name)
        if field is None:
            raise UserError(f"{path}: key '{name}' is missing; is this a DFlash drafter?")
        return field.contents()

    tensors = {t.name: t for t in reader.tensors}
    a = ARCHITECTURE
    layers = key(f"{a}.block_count")
    config = DrafterConfig(
        hidden=key(f"{a}.embedding_length"), layers=layers, heads=key(f"{a}.attention.head_count"),
        kv_heads=key(f"{a}.attention.head_count_kv"), head_dim=key(f"{a}.attention.key_length"),
        ffn=key(f"{a}.feed_forward_length"), rope_base=key(f"{a}.rope.freq_base"),
        eps=key(f"{a}.attention.layer_norm_rms_epsilon"), context=key(f"{a}.context_length"),
        vocabulary=key(f"{a}.vocab_size"), block=key(f"{a}.block_size"), mask_token=key("tokenizer.ggml.mask_token_id"),
        taps=key(f"{a}.target_layers"), draft_ids=tensors["d2t"].data.tolist() if "d2t" in tensors else [])
    parameters = {}
    for parameter, name in tensor_names(layers).items():
        if name not in tensors:
            raise UserError(f"{path}: tensor '{name}' is missing; only drafters with a reduced head can be read")
        parameters[parameter] = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)
    return config, parameters
