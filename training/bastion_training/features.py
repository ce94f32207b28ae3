"""Step 2: the target's hidden states over its own answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from .progress import Progress
from .store import TEACHER, FeatureStore, read_answers
from .target import Target


def bits(rows: torch.Tensor):
    """bfloat16 bits of a float tensor, as numpy uint16."""
    return rows.to(torch.bfloat16).cpu().contiguous().view(torch.uint16).numpy()


def run(target_path: Path, answers: Path, out: Path, device: str, taps: list[int] | None, max_tokens: int) -> None:
    """Appends every answer of `answers` that `out` lacks; sequences are cut at `max_tokens`."""
    target = Target(target_path, device, torch.float32 if device == "cpu" else torch.bfloat16)
    taps = taps or target.default_taps()
    store = FeatureStore(out, taps, target.config.hidden_size, target_path.name)
    done = {s.id for s in store.sequences}
    todo = [a for a in read_answers(answers) if a.id not in done]
    progress = Progress("features", len(done) + len(todo), len(done))
    for number, answer in enumerate(todo, len(done) + 1):
        room = max_tokens - len(answer.prompt)
        if room >= 2:
            cut = replace(answer, tokens=answer.tokens[:room])
            tapped, ids, logprobs = target.features(cut.prompt + cut.tokens, taps, len(cut.prompt) - 1, TEACHER)
            store.append(cut, bits(tapped), ids.cpu().numpy(), logprobs.cpu().numpy())
        progress.update(number, f"{store.rows} rows")
    progress.close()
    store.close()
