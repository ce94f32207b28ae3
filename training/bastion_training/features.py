"""Step 2: the target's hidden states over its own answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from .errors import UserError
from .progress import Progress
from .store import TEACHER, FeatureStore, read_answers
from .target import Target


BATCH = 8  # sequences a pass
REACH = 256  # answers among which a batch finds others of its length


def bits(rows: torch.Tensor):
    """bfloat16 bits of a float tensor, as numpy uint16."""
    return rows.to(torch.bfloat16).cpu().contiguous().view(torch.uint16).numpy()


def run(target_path: Path, answers: Path, out: Path, device: str, taps: list[int] | None, max_tokens: int) -> None:
    """Appends every answer of `answers` that `out` lacks; sequences are cut at `max_tokens`."""
    target = Target(target_path, device, torch.float32 if device == "cpu" else torch.bfloat16)
    taps = taps or target.default_taps()
    layers = target.config.num_hidden_layers
    if sorted(set(taps)) != taps or taps[0] < 0 or taps[-1] >= layers:
        raise UserError(f"--taps: expected increasing layers of 0 to {layers - 1}")
    store = FeatureStore(out, taps, target.config.hidden_size, target_path.name)
    done = {s.id for s in store.sequences}
    todo = [a for a in read_answers(answers) if a.id not in done]
    cut = [replace(a, tokens=a.tokens[: max(max_tokens - len(a.prompt), 0)]) for a in todo]
    cut = [a for a in cut if len(a.tokens) >= 2]
    progress = Progress("features", len(done) + len(cut), len(done))
    number = len(done)
    for at in range(0, len(cut), REACH):
        # Neighbours by length make a batch.
        reach = sorted(cut[at : at + REACH], key=lambda a: len(a.prompt) + len(a.tokens))
        for first in range(0, len(reach), BATCH):
            batch = reach[first : first + BATCH]
            results = target.features([a.prompt + a.tokens for a in batch], taps, [len(a.prompt) - 1 for a in batch],
                                      TEACHER)
            for answer, (tapped, ids, logprobs) in zip(batch, results):
                store.append(answer, bits(tapped), ids.cpu().numpy(), logprobs.cpu().numpy())
            number += len(batch)
            progress.update(number, f"{store.rows} rows")
    progress.close()
    store.close()
