#!/usr/bin/env python3
"""Writes a model of random weights and realistic shape, for timing what does not fit into a cache.

    python3 bench/make_random_model.py --shape llama-1b --out /tmp/llama-1b.gguf [--type q4_1] [--layers N] [--like FILE]

The shapes are those of Llama 3.2 1B, Qwen3 1.7B and the layers of Qwen3-30B-A3B (128 experts, 8 used; `--layers` decides
how much memory it takes). Vocabulary and tokenizer are those of `--like`. The text of such a model means nothing.
Needs numpy and the gguf package, which the pinned source carries.
"""

import argparse
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
try:
    import gguf
except ImportError:
    sys.path.insert(0, str(ROOT / "deps" / "llama.cpp" / "gguf-py"))
    import gguf

SHAPES = {  # arch, hidden, layers, heads, kv_heads, head_dim, ffn, rope_base, experts, experts_used
    "llama-1b": ("llama", 2048, 16, 32, 8, 64, 8192, 5e5, 0, 0),
    "qwen3-1.7b": ("qwen3", 2048, 28, 16, 8, 128, 6144, 1e6, 0, 0),
    "qwen3moe": ("qwen3moe", 2048, 8, 32, 4, 128, 768, 1e6, 128, 8),
}
TYPES = {name: gguf.GGMLQuantizationType[name.upper()] for name in ("q4_0", "q4_1", "q8_0", "f16", "bf16")}


def halfs(value: float, count: int) -> np.ndarray:
    return np.full((count, 1), value, np.float16).view(np.uint8)


def random_matrix(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Weights with variance 1 / columns, as bytes [.., bytes of a row] in the file's type."""
    columns, rows = shape[-1], int(np.prod(shape[:-1]))
    deviation = columns**-0.5
    if kind in ("f16", "bf16"):
        values = rng.standard_normal((rows, columns), np.float32) * deviation
        if kind == "f16":
            return values.astype(np.float16).view(np.uint8).reshape(*shape[:-1], -1)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(*shape[:-1], -1)
    blocks = rows * columns // 32
    if kind == "q8_0":
        parts = [halfs(deviation / 74, blocks), rng.integers(0, 256, (blocks, 32), np.uint8)]
    else:
        scale = deviation / 4.6  # sixteen equal steps have a deviation of 4.6 of them
        parts = [halfs(scale, blocks), rng.integers(0, 256, (blocks, 16), np.uint8)]
        if kind == "q4_1":
            parts.insert(1, halfs(-7.5 * scale, blocks))
    return np.concatenate(parts, axis=1).reshape(*shape[:-1], -1)


def copy_tokenizer(out: gguf.GGUFWriter, like: pathlib.Path) -> int:
    """Returns the size of the vocabulary."""
    reader = gguf.GGUFReader(like)
    for key, field in reader.fields.items():
        if key.startswith("tokenizer."):
            kind = field.types[0]
            out.add_key_value(key, field.contents(), kind,
                              field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    return len(reader.get_field("tokenizer.ggml.tokens").contents())


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=SHAPES, required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--type", choices=TYPES, default="q4_1")
    p.add_argument("--layers", type=int, default=0, help="default: as the shape's model has")
    p.add_argument("--like", type=pathlib.Path, default=ROOT / "deps/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    arch, hidden, layers, heads, kv_heads, head_dim, ffn, rope_base, experts, used = SHAPES[a.shape]
    layers = a.layers or layers
    rng = np.random.default_rng(a.seed)

    out = gguf.GGUFWriter(a.out, arch)
    out.add_name(f"random {a.shape}, {layers} layers")
    out.add_context_length(32768)
    out.add_embedding_length(hidden)
    out.add_block_count(layers)
    out.add_feed_forward_length(ffn)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_rope_dimension_count(head_dim)
    out.add_rope_freq_base(rope_base)
    out.add_layer_norm_rms_eps(1e-6)
    if experts:
        out.add_expert_count(experts)
        out.add_expert_used_count(used)
        out.add_expert_feed_forward_length(ffn)
    vocabulary = copy_tokenizer(out, a.like)
    out.add_vocab_size(vocabulary)

    def matrix(name: str, *shape: int) -> None:
        out.add_tensor(f"{name}.weight", random_matrix(rng, shape, a.type), raw_dtype=TYPES[a.type])

    def ones(name: str, width: int) -> None:
        out.add_tensor(f"{name}.weight", np.ones(width, np.float32))

    matrix("token_embd", vocabulary, hidden)
    ones("output_norm", hidden)
    for i in range(layers):
        ones(f"blk.{i}.attn_norm", hidden)
        ones(f"blk.{i}.ffn_norm", hidden)
        matrix(f"blk.{i}.attn_q", heads * head_dim, hidden)
        matrix(f"blk.{i}.attn_k", kv_heads * head_dim, hidden)
        matrix(f"blk.{i}.attn_v", kv_heads * head_dim, hidden)
        matrix(f"blk.{i}.attn_output", hidden, heads * head_dim)
        if arch != "llama":
            ones(f"blk.{i}.attn_q_norm", head_dim)
            ones(f"blk.{i}.attn_k_norm", head_dim)
        if experts:
            out.add_tensor(f"blk.{i}.ffn_gate_inp.weight",
                           rng.standard_normal((experts, hidden), np.float32) * hidden**-0.5)
            matrix(f"blk.{i}.ffn_gate_exps", experts, ffn, hidden)
            matrix(f"blk.{i}.ffn_up_exps", experts, ffn, hidden)
            matrix(f"blk.{i}.ffn_down_exps", experts, hidden, ffn)
        else:
            matrix(f"blk.{i}.ffn_gate", ffn, hidden)
            matrix(f"blk.{i}.ffn_up", ffn, hidden)
            matrix(f"blk.{i}.ffn_down", hidden, ffn)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    print(f"{a.out}: {a.out.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
