"""The shape of a drafter. Needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DrafterConfig:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    rope_base: float
    eps: float
    context: int
    vocabulary: int  # of the target
    block: int
    mask_token: int
    taps: list[int] = field(default_factory=list)  # `dflash.target_layers`: i is the input of target layer i
    draft_ids: list[int] = field(default_factory=list)  # row of the reduced head -> target token id, ascending
