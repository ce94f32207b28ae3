#!/usr/bin/env python3
"""The DFlash drafter in plain numpy, written from its description only: the tests hold the engine against it.

    python3 reference.py DRAFTER.gguf TARGET.gguf OUT     writes the cases of one drafter

Everything is computed in float64 from the file's (dequantised) weights. The one rounding that belongs to the contract
is kept: keys and values are stored as float16.

OUT, little endian: int32 cases; then per case int32 [positions, width, rows, vocab, anchor, anchor_position], float32
features [positions][width], int32 ids [vocab] (target token of each head row), float32 log-probabilities [rows][vocab].
"""

import pathlib
import struct
import sys
import zlib

import numpy as np

try:
    import gguf
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deps" / "llama.cpp" / "gguf-py"))
    import gguf


class File:
    """Keys and dequantised tensors of a GGUF file; a matrix is [outputs, inputs]."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.entries = {tensor.name: tensor for tensor in reader.tensors}

    def key(self, name, default=None):
        field = self.fields.get(name)
        return default if field is None else field.contents()

    def tensor(self, name):
        entry = self.entries.get(name)
        if entry is None:
            return None
        if entry.tensor_type == gguf.GGMLQuantizationType.I64:
            return np.array(entry.data)
        return gguf.quants.dequantize(entry.data, entry.tensor_type).astype(np.float64)


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def half(x):
    return x.astype(np.float16).astype(np.float64)


def silu(x):
    return x / (1.0 + np.exp(-x))


def rope(x, positions, base):
    """x [rows, heads, d]: element j of the first half turns with element j of the second by position * base^(-2j/d)."""
    d = x.shape[-1]
    angle = np.asarray(positions, dtype=np.float64)[:, None] * base ** (-2.0 * np.arange(d // 2) / d)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    first, second = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


class Drafter:
    def __init__(self, drafter, target):
        self.file, a = drafter, "dflash."
        self.layers = drafter.key(a + "block_count")
        self.heads = drafter.key(a + "attention.head_count")
        self.kv_heads = drafter.key(a + "attention.head_count_kv")
        self.head_dim = drafter.key(a + "attention.key_length")
        self.epsilon = drafter.key(a + "attention.layer_norm_rms_epsilon")
        self.rope_base = drafter.key(a + "rope.freq_base")
        self.block_size = drafter.key(a + "block_size")
        self.taps = drafter.key(a + "target_layers")
        self.mask = drafter.key("tokenizer.ggml.mask_token_id")
        self.window = drafter.key(a + "attention.sliding_window", 0)
        self.windowed = drafter.key(a + "attention.sliding_window_pattern", [False] * self.layers)
        own = drafter.tensor("token_embd.weight")
        borrowed = target.tensor("token_embd.weight")
        self.embeddings = borrowed if own is None else own
        self.head = drafter.tensor("output.weight")
        if self.head is None:
            borrowed_head = target.tensor("output.weight")
            self.head = own if own is not None else borrowed if borrowed_head is None else borrowed_head
        d2t = drafter.tensor("d2t")
        self.ids = np.arange(len(self.head)) if d2t is None else d2t
        self.width = len(self.taps) * self.embeddings.shape[1]
        self.cache = [{} for _ in range(self.layers)]
        for i in range(self.layers):
            for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm",
                         "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"):
                self.cache[i][name] = drafter.tensor(f"blk.{i}.{name}.weight")

    def keys_values(self, i, x, positions):
        w = self.cache[i]
        k = (x @ w["attn_k"].T).reshape(len(x), self.kv_heads, self.head_dim)
        v = (x @ w["attn_v"].T).reshape(len(x), self.kv_heads, self.head_dim)
        k = rope(rms_norm(k, w["attn_k_norm"], self.epsilon), positions, self.rope_base)
        return half(k), half(v)

    def inject(self, features):
        """features [positions, width] of positions 0, 1, ...: keys and values for every layer."""
        fused = rms_norm(features @ self.file.tensor("fc.weight").T, self.file.tensor("enc.output_norm.weight"),
                         self.epsilon)
        return [self.keys_values(i, fused, np.arange(len(features))) for i in range(self.layers)]

    def attend(self, i, q, q_positions, k, v, k_positions):
        out = np.empty_like(q)
        group = self.heads // self.kv_heads
        hidden = np.zeros((len(q), len(k)), dtype=bool)
        if self.windowed[i]:
            hidden = q_positions[:, None] - k_positions[None, :] >= self.window
        for head in range(self.heads):
            scores = q[:, head] @ k[:, head // group].T / np.sqrt(self.head_dim)
            scores[hidden] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, head // group]
        return out.reshape(len(q), -1)

    def draft(self, features, anchor):
        """Log-probabilities [block_size - 1, head rows] for the positions after the anchor."""
        context = self.inject(features)
        start = len(features)
        positions = start + np.arange(self.block_size)
        all_positions = np.arange(start + self.block_size)
        x = self.embeddings[[anchor] + [self.mask] * (self.block_size - 1)]
        for i in range(self.layers):
            w = self.cache[i]
            normed = rms_norm(x, w["attn_norm"], self.epsilon)
            q = (normed @ w["attn_q"].T).reshape(len(x), self.heads, self.head_dim)
            q = rope(rms_norm(q, w["attn_q_norm"], self.epsilon), positions, self.rope_base)
            k, v = self.keys_values(i, normed, positions)
            k = np.concatenate([context[i][0], k])
            v = np.concatenate([context[i][1], v])
            x = x + self.attend(i, q, positions, k, v, all_positions) @ w["attn_output"].T
            normed = rms_norm(x, w["ffn_norm"], self.epsilon)
            x = x + (silu(normed @ w["ffn_gate"].T) * (normed @ w["ffn_up"].T)) @ w["ffn_down"].T
        x = rms_norm(x[1:], self.file.tensor("output_norm.weight"), self.epsilon)
        logits = x @ self.head.T
        top = logits.max(axis=1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))


def write_cases(drafter_path, target_path, out_path):
    """Three cases: 40 positions of context, a prefix of the same context, a single position of another one."""
    drafter = Drafter(File(drafter_path), File(target_path))
    rng = np.random.default_rng(zlib.crc32(pathlib.Path(drafter_path).name.encode()))
    features = rng.standard_normal((40, drafter.width)).astype(np.float32)
    other = rng.standard_normal((1, drafter.width)).astype(np.float32)
    cases = [(features, 17), (features[:23], 101), (other, 250)]
    with open(out_path, "wb") as out:
        out.write(struct.pack("<i", len(cases)))
        for context, anchor in cases:
            logprobs = drafter.draft(context.astype(np.float64), anchor)
            rows, vocab = logprobs.shape
            out.write(struct.pack("<6i", len(context), drafter.width, rows, vocab, anchor, len(context)))
            out.write(context.astype("<f4").tobytes())
            out.write(np.asarray(drafter.ids, dtype="<i4").tobytes())
            out.write(logprobs.astype("<f4").tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    write_cases(*sys.argv[1:])
