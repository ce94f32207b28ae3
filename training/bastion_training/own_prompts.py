"""Before step 1, where prompts are few: the target completes the first words of given prompts. Needs no PyTorch."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

from .answers import call
from .prompts import Prompt, read_prompts

SOURCE = "own"
FEWEST, MOST = 3, 5  # words of a start
FEWEST_WORDS = 7  # of a prompt


def choose_starts(prompts: Iterable[Prompt], count: int, seed: int) -> dict[str, str]:
    """Id -> the first words of a prompt, in random order; every start once, at most `count`, none of short prompts."""
    shuffled = list(prompts)
    rng = random.Random(seed)
    rng.shuffle(shuffled)
    starts: dict[str, str] = {}
    seen = set()
    for prompt in shuffled:
        words = prompt.text.split()
        taken = rng.randint(FEWEST, MOST)
        start = " ".join(words[:taken])
        if len(words) < taken + 4 or len(start) > 60 or start in seen:
            continue
        seen.add(start)
        starts[f"{prompt.source}/{prompt.id}"] = start
        if len(starts) == count:
            break
    return starts


def finished(starts: dict[str, str], lines: Iterable[str]) -> list[Prompt]:
    """Prompts from what `bastion answers` wrote: those the target ended by itself, long enough, each text once."""
    prompts, seen = [], set()
    for line in lines:
        row = json.loads(line)
        text = (starts[row["id"]] + row["text"]).strip() if row["id"] in starts else ""
        if row["stop_reason"] != "eos" or len(text.split()) < FEWEST_WORDS or text in seen:
            continue
        seen.add(text)
        prompts.append(Prompt(row["id"], SOURCE, text))
    return prompts


def run(bastion: Path, target: Path | None, prompts: list[Path], out: Path, header: str, count: int, temperature: float,
        top_p: float, max_tokens: int, concurrency: int, seed: int) -> None:
    """Writes the prompts to `out`. The completions stay beside it, so that the same command goes on where it stopped."""
    starts = choose_starts((p for path in prompts for p in read_prompts(path)), count, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    begun, raw = out.with_name(f"{out.stem}.starts.jsonl"), out.with_name(f"{out.stem}.raw.jsonl")
    begun.write_text("".join(json.dumps({"id": i, "source": SOURCE, "prompt": header + start}) + "\n"
                             for i, start in starts.items()))
    try:
        call(bastion, target, begun, raw,
             ["--raw", "--concurrency", str(concurrency), "--max-tokens", str(max_tokens), "--seed", str(seed),
              "--temperature", str(temperature), "--top-p", str(top_p)])
    finally:
        begun.unlink()
    written = finished(starts, raw.read_text(encoding="utf-8").splitlines())
    out.write_text("".join(json.dumps({"id": p.id, "source": p.source, "prompt": p.text}) + "\n" for p in written))
    print(f"prompts: {len(written)} of {len(starts)} starts became prompts")
