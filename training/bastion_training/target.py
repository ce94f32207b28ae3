"""The target model in PyTorch, read from its GGUF file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import gguf
import torch
import torch.nn.functional as F

from .errors import UserError

# The file's tensor name -> transformers' parameter name, within a layer.
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
MODEL_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def parameter_name(tensor: str) -> str | None:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; None: not a parameter."""
    parts = tensor.removesuffix(".weight").split(".")
    if parts[0] == "blk" and len(parts) == 3 and parts[2] in LAYER_NAMES:
        return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.weight"
    return f"{MODEL_NAMES[parts[0]]}.weight" if len(parts) == 1 and parts[0] in MODEL_NAMES else None


def unpermuted(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Llama files keep the rows of query and key so that rotated pairs are neighbours; transformers rotates halves."""
    return rows.view(heads, -1, 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


def dequantised(tensor) -> torch.Tensor:
    """A tensor of a GGUF file as float32."""
    return torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())


def fast_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices in hardware, several times faster than float32 ones."""
    return bool(torch.cpu.get_capabilities().get("avx512_bf16") or torch.cpu.get_capabilities().get("amx_bf16"))


def half_product(module: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """Operands in bfloat16, the result in float32: what is added up from layer to layer keeps its digits."""
    return F.linear(x.bfloat16(), module.rounded).float()


def likeliest_of(logits: torch.Tensor, count: int, part: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """logits.topk(count), faster for wide rows: the largest stand in the parts with the largest maxima."""
    rows, width = logits.shape
    if width % part or width // part < count:
        return logits.topk(count)
    parts = logits.view(rows, width // part, part)
    chosen = parts.amax(-1).topk(count, sorted=False).indices  # [rows, count]
    values, where = parts.gather(1, chosen[..., None].expand(-1, -1, part)).flatten(1).topk(count)
    return values, chosen.gather(1, where // part) * part + where % part


def open_gguf(path: Path) -> gguf.GGUFReader:
    if not path.is_file():
        raise UserError(f"{path}: no such file (the target's GGUF)")
    try:
        return gguf.GGUFReader(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as GGUF: {error}") from None


def read_embedding(path: Path) -> torch.Tensor:
    """The target's token embeddings [vocabulary, hidden] alone, which is all that a trained drafter needs of it."""
    for tensor in open_gguf(path).tensors:
        if tensor.name == "token_embd.weight":
            return dequantised(tensor)
    raise UserError(f"{path}: tensor token_embd.weight is missing")


class Target:
    """A Llama or Qwen3 causal language model, frozen.

    Weights are dequantised from the GGUF file, so that the features are those of the file BASTION runs.
    """

    def __init__(self, path: Path, device: str = "cpu", dtype: torch.dtype = torch.float32,
                 half_products: bool | None = None) -> None:
        """`half_products`: on a CPU, bfloat16 products with float32 results; default: where it has them in hardware."""
        reader = open_gguf(path)
        self.config, model_class = self._read_config(path, reader)
        state, factors = {}, None
        for tensor in reader.tensors:
            values = dequantised(tensor)
            name = parameter_name(tensor.name)
            if tensor.name == "rope_freqs.weight":
                factors = values
            elif name is None:
                raise UserError(f"{path}: tensor {tensor.name} is not supported")
            else:
                if self.config.model_type == "llama" and ("q_proj" in name or "k_proj" in name):
                    c = self.config
                    values = unpermuted(values, c.num_attention_heads if "q_proj" in name else c.num_key_value_heads)
                state[name] = values.to(dtype)
        state.setdefault("lm_head.weight", state.get("model.embed_tokens.weight"))
        with torch.device("meta"):
            model = model_class(self.config)
        try:
            model.load_state_dict(state, assign=True)
        except RuntimeError as error:
            raise UserError(f"{path}: its tensors do not fit its keys: {' '.join(str(error).split())[:300]}") from None
        rotary = model.model.rotary_emb = type(model.model.rotary_emb)(self.config)
        if factors is not None:
            rotary.inv_freq = rotary.inv_freq / factors
        self.model = model.to(device).eval().requires_grad_(False)
        if self.device.type == "cpu" and (fast_bfloat16() if half_products is None else half_products):
            for module in self.model.model.layers.modules():
                if isinstance(module, torch.nn.Linear):
                    module.register_buffer("rounded", module.weight.bfloat16(), persistent=False)
                    module.forward = partial(half_product, module)
            self._half_head = self.head.bfloat16()
        else:
            self._half_head = None

    @staticmethod
    def _read_config(path: Path, reader: gguf.GGUFReader):
        from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM  # slow to import

        kinds = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}

        def key(name: str, default=None):
            field = reader.get_field(name)
            if field is None and default is None:
                raise UserError(f"{path}: key '{name}' is missing")
            return default if field is None else field.contents()

        arch = key("general.architecture")
        if arch not in kinds:
            raise UserError(f"{path}: architecture '{arch}' is not supported as a target of training, "
                            f"expected {' or '.join(kinds)}")
        for scaling in ("rope.scaling.type", "rope.scaling.factor"):
            if key(f"{arch}.{scaling}", "none") not in ("none", 1.0):
                raise UserError(f"{path}: key '{arch}.{scaling}' is not supported")
        hidden, heads = key(f"{arch}.embedding_length"), key(f"{arch}.attention.head_count")
        config_class, model_class = kinds[arch]
        names = {t.name for t in reader.tensors}
        return config_class(
            vocab_size=len(key("tokenizer.ggml.tokens")), hidden_size=hidden,
            intermediate_size=key(f"{arch}.feed_forward_length"), num_hidden_layers=key(f"{arch}.block_count"),
            num_attention_heads=heads, num_key_value_heads=key(f"{arch}.attention.head_count_kv", heads),
            head_dim=key(f"{arch}.attention.key_length", hidden // heads),
            rms_norm_eps=key(f"{arch}.attention.layer_norm_rms_epsilon"),
            max_position_embeddings=key(f"{arch}.context_length"),
            rope_parameters={"rope_type": "default", "rope_theta": key(f"{arch}.rope.freq_base", 10000.0)},
            tie_word_embeddings="output.weight" not in names), model_class

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def embedding(self) -> torch.Tensor:
        """[vocabulary, hidden]"""
        return self.model.get_input_embeddings().weight

    @property
    def head(self) -> torch.Tensor:
        """[vocabulary, hidden]; the same tensor as the embedding where the two are tied."""
        return self.model.get_output_embeddings().weight

    def default_taps(self, count: int = 5) -> list[int]:
        """As `dflash.target_layers` counts (i is the input of layer i): evenly from the second layer to the last."""
        last = self.config.num_hidden_layers - 1
        first = min(2, last)
        return sorted({first + round(i * (last - first) / max(count - 1, 1)) for i in range(count)})

    @torch.inference_mode()
    def features(self, sequences: list[list[int]], taps: list[int], firsts: list[int], likeliest: int,
                 ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """One pass over some sequences of tokens; of similar lengths it is quickest.

        Returns for each, of T tokens, the inputs of the tapped layers, side by side [T, len(taps) * hidden], and the
        `likeliest` next tokens after every row from its `first` on: ids and log-probabilities [T, likeliest] (zeros
        before `first`).
        """
        ids = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.long, device=self.device)
        for row, tokens in zip(ids, sequences):
            row[: len(tokens)] = torch.tensor(tokens)
        inputs: dict[int, torch.Tensor] = {}
        layers = self.model.model.layers
        hooks = [layers[tap].register_forward_pre_hook(lambda _, args, tap=tap: inputs.update({tap: args[0]}))
                 for tap in set(taps)]
        try:
            # Rows behind a shorter sequence's end see it, not the other way round.
            last = self.model.model(input_ids=ids, use_cache=False).last_hidden_state
        finally:
            for hook in hooks:
                hook.remove()
        out = []
        for i, (tokens, first) in enumerate(zip(sequences, firsts)):
            states = last[i, first : len(tokens)]
            logits = (F.linear(states, self.head) if self._half_head is None
                      else F.linear(states.bfloat16(), self._half_head)).float()
            values, indices = likeliest_of(logits, likeliest)
            logprobs = values - logits.logsumexp(-1, keepdim=True)
            out.append((torch.cat([inputs[tap][i, : len(tokens)] for tap in taps], dim=-1),
                        F.pad(indices, (0, 0, first, 0)), F.pad(logprobs, (0, 0, first, 0))))
        return out
