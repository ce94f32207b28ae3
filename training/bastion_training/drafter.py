"""The DFlash drafter as a PyTorch module, and how a block looks while it is trained.

Shapes: B sequences, T context rows, A anchors a sequence, b block size (anchor and b - 1 masks), h hidden size, d head
size, n_q/n_kv heads. The module computes what src/model/drafter.cpp computes; the tests hold the two against each other.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .config import DrafterConfig


class RmsNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Layer(nn.Module):
    def __init__(self, c: DrafterConfig) -> None:
        super().__init__()
        self.c = c
        self.attn_norm, self.ffn_norm = RmsNorm(c.hidden, c.eps), RmsNorm(c.hidden, c.eps)
        self.attn_q_norm, self.attn_k_norm = RmsNorm(c.head_dim, c.eps), RmsNorm(c.head_dim, c.eps)
        self.attn_q = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.attn_k = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.attn_v = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.attn_output = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        self.ffn_gate = nn.Linear(c.hidden, c.ffn, bias=False)
        self.ffn_up = nn.Linear(c.hidden, c.ffn, bias=False)
        self.ffn_down = nn.Linear(c.ffn, c.hidden, bias=False)

    def keys_values(self, x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """x [.., rows, h] -> keys (normed, rotated) and values, each [.., n_kv, rows, d]."""
        shape = (*x.shape[:-1], self.c.kv_heads, self.c.head_dim)
        keys = self.attn_k_norm(self.attn_k(x).view(shape)).transpose(-3, -2)
        return rotate(keys, rope), self.attn_v(x).view(shape).transpose(-3, -2)

    def forward(self, x: torch.Tensor, context: torch.Tensor, hidden_context: torch.Tensor,
                context_rope: tuple[torch.Tensor, torch.Tensor], block_rope: tuple[torch.Tensor, torch.Tensor],
                ) -> torch.Tensor:
        """x [B, A, b, h]; context [B, T, h]; hidden_context [B, A, T]: 0 where a block sees the row, -inf elsewhere."""
        c = self.c
        B, A, b, _ = x.shape
        group, T = c.heads // c.kv_heads, context.shape[1]
        normed = self.attn_norm(x)
        ck, cv = self.keys_values(context, context_rope)  # [B, n_kv, T, d]
        bk, bv = self.keys_values(normed, block_rope)  # [B, A, n_kv, b, d]
        q = self.attn_q_norm(self.attn_q(normed).view(B, A, b, c.heads, c.head_dim)).transpose(2, 3)
        q = rotate(q, block_rope) * c.head_dim**-0.5  # [B, A, n_q, b, d]
        q = q.view(B, A, c.kv_heads, group * b, c.head_dim)

        over_context = q.transpose(1, 2).reshape(B, c.kv_heads, A * group * b, c.head_dim) @ ck.transpose(-1, -2)
        over_context = over_context.view(B, c.kv_heads, A, group * b, T) + hidden_context[:, None, :, None, :]
        over_block = (q @ bk.transpose(-1, -2)).transpose(1, 2)  # [B, n_kv, A, group * b, b]
        weights = torch.cat([over_context, over_block], dim=-1).softmax(dim=-1)
        mixed = weights[..., :T].reshape(B, c.kv_heads, A * group * b, T) @ cv
        mixed = mixed.view(B, c.kv_heads, A, group * b, c.head_dim)
        mixed = mixed + weights[..., T:] @ bv.transpose(1, 2)
        mixed = mixed.view(B, c.kv_heads, A, group, b, c.head_dim).permute(0, 2, 4, 1, 3, 5)
        x = x + self.attn_output(mixed.reshape(B, A, b, c.heads * c.head_dim))
        normed = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class Drafter(nn.Module):
    """Parameter names follow the GGUF tensor names (export.py lists the few that differ)."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(len(config.taps) * config.hidden, config.hidden, bias=False)
        self.hidden_norm = RmsNorm(config.hidden, config.eps)
        self.blk = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.output_norm = RmsNorm(config.hidden, config.eps)
        self.output = nn.Linear(config.hidden, len(config.draft_ids), bias=False)

    def rope(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin [.., d/2] of the NeoX rotation at the given positions [..]."""
        half = self.config.head_dim // 2
        frequency = self.config.rope_base ** (-torch.arange(half, device=positions.device) / half)
        angle = positions[..., None].float() * frequency
        return angle.cos(), angle.sin()

    def forward(self, taps: torch.Tensor, embedding: torch.Tensor, anchors: torch.Tensor, anchor_tokens: torch.Tensor,
                block: int | None = None) -> torch.Tensor:
        """Hidden rows behind the masks, ready for the head: [B, A, b - 1, h].

        `taps` [B, T, taps * h], row t belongs to position t; `anchors` [B, A]: positions, whose block sees rows
        0 .. anchor - 1; `anchor_tokens` [B, A]; `embedding` [vocabulary, h]: the target's. `block` may be smaller than
        the configured one.
        """
        b = block or self.config.block
        T = taps.shape[1]
        context = self.hidden_norm(self.fc(taps))
        steps = torch.arange(T, device=taps.device)
        hidden_context = torch.zeros(*anchors.shape, T, device=taps.device)
        hidden_context.masked_fill_(steps >= anchors[..., None], float("-inf"))
        context_rope = self.rope(steps)
        cos, sin = self.rope(anchors[..., None] + torch.arange(b, device=taps.device))  # [B, A, b, d/2]
        block_rope = (cos.unsqueeze(2), sin.unsqueeze(2))
        tokens = torch.full((*anchors.shape, b), self.config.mask_token, device=taps.device)
        tokens[..., 0] = anchor_tokens
        x = F.embedding(tokens, embedding).to(context.dtype)
        for layer in self.blk:
            x = layer(x, context, hidden_context, context_rope, block_rope)
        return self.output_norm(x[:, :, 1:])

    def logits(self, rows: torch.Tensor) -> torch.Tensor:
        """[.., h] -> [.., draft vocabulary]"""
        return self.output(rows)


def rotate(x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """NeoX rotation of x [.., rows, d] by cos and sin [.., rows, d/2]."""
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@torch.no_grad()
def start_from_target(drafter: Drafter, target, layers: list[int], sample: list[int]) -> None:
    """Copies target layers into the drafter's, the target's head rows into its head, and makes `fc` pass the mean of
    the taps nearest to those layers, so that keys and values of the context start near what the target's own layers
    compute. `sample`: token ids that show how large the target's queries and keys are (the drafter norms them)."""
    c = drafter.config
    states = target.model.model(input_ids=torch.tensor([sample], device=target.device), output_hidden_states=True,
                                use_cache=False).hidden_states
    nearest = [min(range(len(c.taps)), key=lambda t: abs(c.taps[t] - layer)) for layer in layers]
    weight = torch.zeros(c.hidden, len(c.taps), c.hidden)
    for tap in nearest:
        size = states[c.taps[tap]][0].float()[4:].pow(2).mean().sqrt().cpu()
        weight[:, tap] += torch.eye(c.hidden) / size / len(nearest)
    weight = weight.reshape(c.hidden, -1)
    drafter.fc.weight.copy_(weight + torch.randn_like(weight) * weight.abs().max() * 0.02)

    gains = []
    for mine, index in zip(drafter.blk, layers):
        theirs = target.model.model.layers[index]
        attention, mlp = theirs.self_attn, theirs.mlp
        for own, source in ((mine.attn_q, attention.q_proj), (mine.attn_k, attention.k_proj),
                            (mine.attn_v, attention.v_proj), (mine.attn_output, attention.o_proj),
                            (mine.ffn_gate, mlp.gate_proj), (mine.ffn_up, mlp.up_proj), (mine.ffn_down, mlp.down_proj),
                            (mine.attn_norm, theirs.input_layernorm), (mine.ffn_norm, theirs.post_attention_layernorm)):
            own.weight.copy_(source.weight)
        gains.append(theirs.input_layernorm.weight.float().cpu())
        if hasattr(attention, "q_norm"):
            mine.attn_q_norm.weight.copy_(attention.q_norm.weight)
            mine.attn_k_norm.weight.copy_(attention.k_norm.weight)
        else:
            normed = theirs.input_layernorm(states[index][0])
            mine.attn_q_norm.weight.fill_(attention.q_proj(normed).float().pow(2).mean().sqrt().item())
            mine.attn_k_norm.weight.fill_(attention.k_proj(normed).float().pow(2).mean().sqrt().item())
    drafter.hidden_norm.weight.copy_(torch.stack(gains).mean(dim=0))
    drafter.output_norm.weight.copy_(target.model.model.norm.weight)
    drafter.output.weight.copy_(target.head[c.draft_ids])
