"""The target model in PyTorch, read from its GGUF file."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.nn.functional as F

from .errors import UserError


class Target:
    """A Llama- or Qwen3-family causal language model, frozen.

    Weights are dequantised from the GGUF file, so that the features are those of the file BASTION runs.
    """

    def __init__(self, path: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        if not path.is_file():
            raise UserError(f"{path}: no such file (the target's GGUF)")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from transformers import AutoModelForCausalLM  # slow to import

        try:
            model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=dtype)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{path}: cannot be read as a target: {error}") from None
        self.model = model.to(device).eval().requires_grad_(False)
        self.config = model.config
        if self.config.model_type not in ("llama", "qwen3", "qwen3_moe"):
            raise UserError(f"{path}: target architecture '{self.config.model_type}' is not supported")

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
        """Indices as `dflash.target_layers` counts: i is the input of layer i. Evenly from the second layer to the last."""
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
