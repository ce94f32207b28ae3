"""Checkpoints of a training, and drafters read back from them or from a GGUF file."""

from __future__ import annotations

from pathlib import Path

import torch

from . import export as gguf_file
from .config import DrafterConfig
from .drafter import Drafter
from .errors import UserError


def load_state(folder: Path, device: str | torch.device = "cpu") -> dict:
    path = folder / "checkpoint.pt"
    if not path.is_file():
        raise UserError(f"{folder}: holds no checkpoint (write one with the command 'train')")
    return torch.load(path, map_location=device, weights_only=True)


def load_drafter(source: Path, device: str | torch.device = "cpu") -> Drafter:
    """From a training's folder or a GGUF file."""
    if source.is_dir():
        state = load_state(source, device)
        drafter = Drafter(DrafterConfig(**state["config"]))
        drafter.load_state_dict(state["drafter"])
    else:
        config, parameters = gguf_file.read(source)
        drafter = Drafter(config)
        drafter.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in parameters.items()})
    return drafter.to(device)


def export(folder: Path, out: Path, target: Path, matrix_type: str, head_type: str, about: dict[str, str]) -> None:
    for chosen in (matrix_type, head_type):
        if chosen not in gguf_file.TYPES:
            raise UserError(f"--type: expected one of {', '.join(gguf_file.TYPES)}, got '{chosen}'")
    state = load_state(folder)
    parameters = {name: values.float().numpy() for name, values in state["drafter"].items()}
    gguf_file.write(out, DrafterConfig(**state["config"]), parameters, target, matrix_type, head_type, about)
    print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB")
