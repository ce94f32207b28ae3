"""The target model in PyTorch, read from its GGUF file."""

from __future__ import annotations

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

    def __init__(self, path: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
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
    def features(self, tokens: list[int], taps: list[int], first: int, likeliest: int,
                 ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One pass over a sequence of T tokens.

        Returns the inputs of the tapped layers, side by side [T, len(taps) * hidden], and the `likeliest` next tokens
        after every row from `first` on: ids and log-probabilities [T, likeliest] (zeros before `first`).
        """
        ids = torch.tensor([tokens], device=self.device)
        states = self.model.model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
        logits = F.linear(states[-1][0, first:], self.head).float()
        top = logits.topk(likeliest)
        logprobs = top.values - logits.logsumexp(-1, keepdim=True)
        before = (first, 0)
        return (torch.cat([states[i][0] for i in taps], dim=-1), F.pad(top.indices, (0, 0, *before)),
                F.pad(logprobs, (0, 0, *before)))
