"""The Muon optimizer (momentum, then orthogonalised updates) for matrices."""

from __future__ import annotations

import torch

# Quintic Newton-Schulz coefficients (K. Jordan, 2024): singular values end up between about 0.7 and 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalised(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """The nearest semi-orthogonal matrix, roughly: the factor U V^T of `matrix` [m, n]."""
    x = matrix.bfloat16() if matrix.is_cuda else matrix.float()
    wide = x.shape[0] <= x.shape[1]
    if not wide:
        x = x.T
    x = x / (x.norm() + 1e-7)
    if x.is_cuda or x.shape[1] < 2 * x.shape[0]:
        for _ in range(steps):
            gram = x @ x.T
            x = _A * x + (_B * gram + _C * (gram @ gram)) @ x
    else:
        # The same polynomial of the small matrix x x^T, gathered first and applied to the wide matrix once.
        gram, product = x @ x.T, None
        for step in range(steps):
            factor = _B * gram + _C * (gram @ gram)
            factor.diagonal().add_(_A)
            product = factor if product is None else factor @ product
            if step + 1 < steps:
                gram = factor @ gram @ factor
        x = product @ x
    return (x if wide else x.T).to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    """Nesterov momentum; every update has the root mean square 0.2 x lr of a typical AdamW update (Moonlight, 2025)."""

    def __init__(self, params, lr: float, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                buffer = state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                update = orthogonalised(p.grad.lerp(buffer, group["momentum"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-0.2 * max(p.shape) ** 0.5 * group["lr"])
