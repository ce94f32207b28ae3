"""Which prompts may be trained on. Needs no PyTorch."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .errors import UserError

NGRAM = 13  # words; the usual length for finding test questions in training text


@dataclass(frozen=True)
class Prompt:
    id: str
    source: str
    text: str


@dataclass
class Filtered:
    kept: list[Prompt] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> count

    def drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1


def read_prompts(path: Path) -> list[Prompt]:
    """JSON lines with `prompt` or `turns` (the first), and maybe `id` and `source`."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    prompts = []
    # Not splitlines(), which also splits at U+2028 and its like, allowed within JSON strings.
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            text = row["turns"][0] if "turns" in row else row["prompt"]
            if not isinstance(text, str):
                raise TypeError("the prompt is not a text")
            prompts.append(Prompt(str(row.get("id", number)), str(row.get("source", path.stem)), text))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise UserError(f"{path}: line {number} holds no prompt: {error!r}") from None
    return prompts


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def ngrams(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + NGRAM]) for i in range(len(words) - NGRAM + 1)}


def filter_prompts(prompts: Iterable[Prompt], benchmarks: Iterable[Prompt], max_characters: int = 4000) -> Filtered:
    """Drops empty and overlong prompts, repetitions, and whatever shares the whole text or NGRAM words in a row with a
    benchmark prompt (punctuation and case aside)."""
    texts, taken = set(), set()
    for prompt in benchmarks:
        w = words(prompt.text)
        texts.add(" ".join(w))
        taken |= ngrams(w)
    result, seen = Filtered(), set()
    for prompt in prompts:
        w = words(prompt.text)
        text = " ".join(w)
        if not w:
            result.drop("empty")
        elif len(prompt.text) > max_characters:
            result.drop("too long")
        elif text in seen:
            result.drop("repeated")
        elif text in texts or not taken.isdisjoint(ngrams(w)):
            result.drop("in a benchmark")
        else:
            seen.add(text)
            result.kept.append(prompt)
    return result


def is_sampled(prompt: Prompt, share: float) -> bool:
    """Whether this prompt's answer is sampled (else greedy); its text alone decides."""
    return zlib.crc32(prompt.text.encode()) % 1000 < share * 1000
