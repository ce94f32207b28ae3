"""Which of the target's tokens the drafter may propose. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def choose_vocabulary(answers: Iterable[np.ndarray], size: int, target_size: int) -> list[int]:
    """The `size` token ids met most often in the answers, ascending; ties go to the smaller id, and ids never met
    fill up what is left."""
    counts = np.zeros(target_size, np.int64)
    for tokens in answers:
        counts += np.bincount(tokens, minlength=target_size)
    return sorted(np.argsort(-counts, kind="stable")[: min(size, target_size)].tolist())


def coverage(answers: Iterable[np.ndarray], ids: list[int]) -> float:
    """Share of the tokens of the answers that are among `ids`."""
    chosen = np.asarray(ids)
    total = inside = 0
    for tokens in answers:
        total += len(tokens)
        inside += int(np.isin(tokens, chosen).sum())
    return inside / total if total else 0.0
