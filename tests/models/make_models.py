#!/usr/bin/env python3
"""Writes the tiny random models of the tests, and what the drafters among them must answer, to OUT_DIR.

    python3 make_models.py OUT_DIR

Every weight comes from a generator seeded by the file's name, so the files are the same on every machine. Nothing is
written when OUT_DIR already holds the output of this very version of the scripts.

    tiny-llama3.gguf            llama, F32, head of its own, rope frequency factors, grouped-query attention
    tiny-llama3-<type>.gguf     the same weights as f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0
    tiny-llama256.gguf          llama, F16, rows of 256 elements, so that K-quants of it can be made
    tiny-qwen3.gguf             qwen3, F32, tied head, heads * head_dim != hidden
    tiny-qwen3moe.gguf          qwen3moe, F32, 8 experts, 2 used
    tiny-<target>-dflash.gguf   drafter that borrows the target's embeddings and head
    tiny-llama3-dflash-<v>.gguf own (embeddings and head of its own), tied (embeddings of its own, also as head),
                                d2t (reduced vocabulary), window (sliding window in the first layer)
    <drafter>.reference         inputs and log-probabilities by reference.py
"""

import hashlib
import pathlib
import sys
import zlib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
try:
    import gguf
except ImportError:  # the pinned source carries the package
    sys.path.insert(0, str(HERE.parents[1] / "deps" / "llama.cpp" / "gguf-py"))
    import gguf

import reference

VOCAB = 320
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
EOS, MASK = 0, 3
TRAINING_TEXT = """
the tree is checked in one pass and the path that the model would have taken is kept, the rest of the tree is dropped.
then the next tree is drawn from the hidden states of the path, and so on until the text ends. one two three four five
six seven eight nine ten: the numbers are there so that the tokens of the test have something to count. all of this is
here only to give the small vocabulary some merges of its own, and there is no other meaning in it than that.
"""
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_symbols():
    """The printable character that stands for each byte in a byte-level BPE vocabulary."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = {byte: chr(byte) for byte in plain}
    spare = 0x100
    for byte in range(256):
        if byte not in symbols:
            symbols[byte] = chr(spare)
            spare += 1
    return symbols


def vocabulary():
    """Tokens and merges: special tokens, the 256 bytes, then the most frequent pairs of TRAINING_TEXT."""
    symbols = byte_symbols()
    words = []
    for word in TRAINING_TEXT.replace("\n", " ").split(" "):
        if word:
            words.append([symbols[byte] for byte in (" " + word).encode()])
    tokens = SPECIAL + [symbols[byte] for byte in range(256)]
    merges = []
    while len(tokens) < VOCAB:
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(sorted(counts), key=lambda pair: counts[pair])
        merges.append(" ".join(best))
        if best[0] + best[1] not in tokens:
            tokens.append(best[0] + best[1])
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [best[0] + best[1]]
                i += 1
    return tokens, merges


class Shape:
    """Sizes of a model; `key_length` False: left to the reader, who takes hidden / heads."""

    def __init__(self, hidden, layers, heads, kv_heads, head_dim, ffn, key_length=True, experts=0, used=0):
        self.hidden, self.layers, self.heads, self.kv_heads = hidden, layers, heads, kv_heads
        self.head_dim, self.ffn, self.key_length = head_dim, ffn, key_length
        self.experts, self.used = experts, used


LLAMA3 = Shape(hidden=128, layers=3, heads=4, kv_heads=2, head_dim=32, ffn=192, key_length=False)
LLAMA256 = Shape(hidden=256, layers=2, heads=8, kv_heads=2, head_dim=32, ffn=256, key_length=False)
QWEN3 = Shape(hidden=64, layers=4, heads=4, kv_heads=2, head_dim=32, ffn=128)
QWEN3MOE = Shape(hidden=64, layers=3, heads=4, kv_heads=2, head_dim=32, ffn=64, experts=8, used=2)


class Model:
    """A GGUF file in the making: random tensors by name, keys of the architecture, the shared vocabulary."""

    def __init__(self, directory, name, arch, seed_name=None, matrix_type="F32"):
        self.path = directory / f"{name}.gguf"
        self.arch = arch
        self.rng = np.random.default_rng(zlib.crc32((seed_name or name).encode()))
        self.type = gguf.GGMLQuantizationType[matrix_type.upper()]
        self.writer = gguf.GGUFWriter(self.path, arch)
        self.writer.add_string("general.name", name)

    def key(self, name):
        return f"{self.arch}.{name}"

    def sizes(self, s, rope_base):
        w = self.writer
        w.add_uint32(self.key("block_count"), s.layers)
        w.add_uint32(self.key("context_length"), 512)
        w.add_uint32(self.key("embedding_length"), s.hidden)
        w.add_uint32(self.key("feed_forward_length"), s.ffn)
        w.add_uint32(self.key("attention.head_count"), s.heads)
        w.add_uint32(self.key("attention.head_count_kv"), s.kv_heads)
        w.add_float32(self.key("attention.layer_norm_rms_epsilon"), 1e-5)
        w.add_float32(self.key("rope.freq_base"), rope_base)
        w.add_uint32(self.key("vocab_size"), VOCAB)
        if s.key_length:
            w.add_uint32(self.key("attention.key_length"), s.head_dim)
            w.add_uint32(self.key("attention.value_length"), s.head_dim)
        if s.experts:
            w.add_uint32(self.key("expert_count"), s.experts)
            w.add_uint32(self.key("expert_used_count"), s.used)
            w.add_uint32(self.key("expert_feed_forward_length"), s.ffn)

    def tokenizer(self, template=True, mask=False):
        tokens, merges = vocabulary()
        kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
        w = self.writer
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("smollm")
        w.add_token_list(tokens)
        w.add_token_types([int(kind) for kind in kinds])
        w.add_token_merges(merges)
        w.add_bos_token_id(EOS)
        w.add_eos_token_id(EOS)
        w.add_add_bos_token(False)
        w.add_add_space_prefix(False)
        if mask:
            w.add_uint32("tokenizer.ggml.mask_token_id", MASK)
        if template:
            w.add_chat_template(CHAT_TEMPLATE)

    def vector(self, name, size, mean=1.0, spread=0.1):
        self.writer.add_tensor(name, self.rng.normal(mean, spread, size).astype(np.float32))

    def matrix(self, name, rows, columns, gain=1.0, stack=0):
        """[stack x] rows x columns, scaled so that an input of unit variance leaves with variance gain^2."""
        shape = (stack, rows, columns) if stack else (rows, columns)
        values = (self.rng.standard_normal(shape) * (gain / np.sqrt(columns))).astype(np.float32)
        self.writer.add_tensor(name, gguf.quants.quantize(values, self.type), raw_dtype=self.type)

    def layer(self, i, s, qk_norm):
        blk = f"blk.{i}."
        self.vector(blk + "attn_norm.weight", s.hidden)
        # Without a norm on queries and keys, gain alone decides how sharp attention is; 1.5 keeps positions relevant.
        gain = 1.0 if qk_norm else 1.5
        self.matrix(blk + "attn_q.weight", s.heads * s.head_dim, s.hidden, gain)
        self.matrix(blk + "attn_k.weight", s.kv_heads * s.head_dim, s.hidden, gain)
        self.matrix(blk + "attn_v.weight", s.kv_heads * s.head_dim, s.hidden)
        self.matrix(blk + "attn_output.weight", s.hidden, s.heads * s.head_dim)
        if qk_norm:
            self.vector(blk + "attn_q_norm.weight", s.head_dim, mean=1.3)
            self.vector(blk + "attn_k_norm.weight", s.head_dim, mean=1.3)
        self.vector(blk + "ffn_norm.weight", s.hidden)
        if s.experts:
            # A wide router keeps the chosen experts clear of ties, which rounding could turn round.
            kept = self.type
            self.type = gguf.GGMLQuantizationType.F32
            self.matrix(blk + "ffn_gate_inp.weight", s.experts, s.hidden, gain=4.0)
            self.type = kept
            self.matrix(blk + "ffn_gate_exps.weight", s.ffn, s.hidden, stack=s.experts)
            self.matrix(blk + "ffn_up_exps.weight", s.ffn, s.hidden, stack=s.experts)
            self.matrix(blk + "ffn_down_exps.weight", s.hidden, s.ffn, stack=s.experts)
        else:
            self.matrix(blk + "ffn_gate.weight", s.ffn, s.hidden)
            self.matrix(blk + "ffn_up.weight", s.ffn, s.hidden)
            self.matrix(blk + "ffn_down.weight", s.hidden, s.ffn)

    def write(self):
        w = self.writer
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


def make_llama(directory, name, s, seed_name=None, matrix_type="F32"):
    m = Model(directory, name, "llama", seed_name, matrix_type)
    m.sizes(s, rope_base=500000.0)
    m.writer.add_uint32(m.key("rope.dimension_count"), s.head_dim)
    m.tokenizer()
    m.matrix("token_embd.weight", VOCAB, s.hidden, gain=np.sqrt(s.hidden))
    m.vector("output_norm.weight", s.hidden)
    m.matrix("output.weight", VOCAB, s.hidden, gain=2.0)
    # From 1 for the fast pairs to 8 for the slow ones, as Llama-3.1 stretches its wavelengths.
    m.writer.add_tensor("rope_freqs.weight", np.linspace(1.0, 8.0, s.head_dim // 2).astype(np.float32))
    for i in range(s.layers):
        m.layer(i, s, qk_norm=False)
    m.write()


def make_qwen3(directory, name, arch, s):
    m = Model(directory, name, arch)
    m.sizes(s, rope_base=1000000.0)
    m.tokenizer()
    # The embeddings are the head too: this gain gives logits with a standard deviation near 2.
    m.matrix("token_embd.weight", VOCAB, s.hidden, gain=2.0)
    m.vector("output_norm.weight", s.hidden)
    for i in range(s.layers):
        m.layer(i, s, qk_norm=True)
    m.write()


def make_drafter(directory, name, target, layers, taps, block_size, variant="shared"):
    s = Shape(target.hidden, layers, heads=4, kv_heads=2, head_dim=32, ffn=96)
    m = Model(directory, name, "dflash")
    w = m.writer
    m.sizes(s, rope_base=10000.0)
    w.add_uint32(m.key("rope.dimension_count"), s.head_dim)
    w.add_uint32(m.key("block_size"), block_size)
    w.add_array(m.key("target_layers"), taps)
    if variant == "window":
        w.add_uint32(m.key("attention.sliding_window"), 8)
        w.add_array(m.key("attention.sliding_window_pattern"), [i == 0 for i in range(layers)])
    m.tokenizer(template=False, mask=True)
    if variant in ("own", "tied"):
        m.matrix("token_embd.weight", VOCAB, s.hidden, gain=2.0 if variant == "tied" else np.sqrt(s.hidden))
    if variant == "own":
        m.matrix("output.weight", VOCAB, s.hidden, gain=2.0)
    if variant == "d2t":
        kept = np.sort(m.rng.choice(VOCAB, size=96, replace=False)).astype(np.int64)
        m.matrix("output.weight", len(kept), s.hidden, gain=2.0)
        w.add_tensor("d2t", kept)
    m.matrix("fc.weight", s.hidden, len(taps) * s.hidden)
    m.vector("enc.output_norm.weight", s.hidden)
    m.vector("output_norm.weight", s.hidden)
    for i in range(layers):
        m.layer(i, s, qk_norm=True)
    m.write()


def make_all(directory):
    make_llama(directory, "tiny-llama3", LLAMA3)
    for kind in ("f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"):
        make_llama(directory, f"tiny-llama3-{kind}", LLAMA3, "tiny-llama3", kind)
    make_llama(directory, "tiny-llama256", LLAMA256, matrix_type="F16")
    make_qwen3(directory, "tiny-qwen3", "qwen3", QWEN3)
    make_qwen3(directory, "tiny-qwen3moe", "qwen3moe", QWEN3MOE)

    drafters = {"tiny-qwen3-dflash": "tiny-qwen3", "tiny-qwen3moe-dflash": "tiny-qwen3moe"}
    make_drafter(directory, "tiny-qwen3-dflash", QWEN3, layers=3, taps=[1, 3], block_size=8)
    make_drafter(directory, "tiny-qwen3moe-dflash", QWEN3MOE, layers=2, taps=[1, 2], block_size=4)
    for variant in ("shared", "own", "tied", "d2t", "window"):
        name = "tiny-llama3-dflash" + ("" if variant == "shared" else f"-{variant}")
        make_drafter(directory, name, LLAMA3, layers=2, taps=[1, 2, 3], block_size=6, variant=variant)
        drafters[name] = "tiny-llama3"
    for name, target in drafters.items():
        reference.write_cases(directory / f"{name}.gguf", directory / f"{target}.gguf", directory / f"{name}.reference")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    sources = [HERE / "make_models.py", HERE / "reference.py"]
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    stamp = directory / "version"
    if stamp.exists():
        wanted, *files = stamp.read_text().split()
        if wanted == version and all((directory / name).exists() for name in files):
            return
        stamp.unlink()
    make_all(directory)
    files = sorted(path.name for path in directory.iterdir() if path.suffix in (".gguf", ".reference"))
    stamp.write_text("\n".join([version, *files]) + "\n")


if __name__ == "__main__":
    main()
