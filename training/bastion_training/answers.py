"""Step 1: the target's own answers, through BASTION's engine in batch. Needs no PyTorch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .errors import UserError
from .prompts import filter_prompts, is_sampled, read_prompts


def call(bastion: Path, target: Path | None, prompts: Path, out: Path, options: list[str]) -> None:
    """Runs `bastion answers` without a draft; UserError if it fails."""
    if not bastion.is_file():
        raise UserError(f"{bastion}: no such program (build it with 'make', or name it with --bastion)")
    command = [str(bastion), "answers", "--prompts", str(prompts), "--out", str(out), "--method", "ar", *options]
    if target:
        command += ["--target", str(target)]
    if code := subprocess.run(command).returncode:
        raise UserError(f"'{' '.join(command[:2])}' ended with code {code}; run the same command again to go on")


def run(bastion: Path, target: Path | None, prompts: list[Path], benchmarks: list[Path], out: Path, sampled: float,
        temperature: float, max_tokens: int, concurrency: int, limit: int, seed: int) -> None:
    """Filters the prompts and has `bastion answers` write one answer each to `out`; what is there already is kept."""
    result = filter_prompts((p for path in prompts for p in read_prompts(path)),
                            (p for path in benchmarks for p in read_prompts(path)))
    kept = result.kept[:limit] if limit else result.kept
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(result.dropped.items()))
    print(f"answers: {len(kept)} prompts{'; dropped: ' + dropped if dropped else ''}", flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    for drawn in (False, True):
        chosen = [p for p in kept if is_sampled(p, sampled) == drawn]
        if not chosen:
            continue
        part = out.with_name(f"{out.stem}.{'sampled' if drawn else 'greedy'}.prompts.jsonl")
        part.write_text("".join(
            json.dumps({"id": f"{p.source}/{p.id}", "source": p.source, "prompt": p.text}) + "\n" for p in chosen))
        try:
            call(bastion, target, part, out,
                 ["--concurrency", str(concurrency), "--max-tokens", str(max_tokens), "--seed", str(seed),
                  "--temperature", str(temperature if drawn else 0)])
        finally:
            part.unlink()
