"""Step 4: what a drafter would accept, by replaying held-out answers of the target."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from .checkpoint import load_drafter
from .drafter import Drafter
from .errors import UserError
from .progress import Progress
from .store import FeatureStore, held_out
from .target import read_embedding
from .tree import insertion_order

BUDGETS = (2, 4, 8, 16, 32, 64)


@torch.inference_mode()
def lattices(drafter: Drafter, embedding: torch.Tensor, taps: torch.Tensor, tokens: np.ndarray, first: int, topk: int,
             chunk: int = 64):
    """For every anchor position first .. len(tokens) - 2: top-K target ids and log-probabilities [anchors, b - 1, K]."""
    device = embedding.device
    draft_ids = torch.tensor(drafter.config.draft_ids, device=device)
    ids, logprobs = [], []
    positions = torch.arange(first, len(tokens) - 1, device=device)
    values = torch.from_numpy(tokens.astype(np.int64)).to(device)
    for part in positions.split(chunk):
        seen = int(part[-1])
        rows = drafter(taps[None, :seen], embedding, part[None], values[part][None])
        top = drafter.logits(rows)[0].float().log_softmax(-1).topk(topk)
        ids.append(draft_ids[top.indices].cpu())
        logprobs.append(top.values.cpu())
    return torch.cat(ids).tolist(), torch.cat(logprobs).tolist()


def replay(store: FeatureStore, chosen: list, drafter: Drafter, embedding: torch.Tensor, topk: int = 8,
           limit: int = 128, quiet: bool = False) -> dict:
    """tau (tokens emitted by cycles / cycles) of the chain and of trees of BUDGETS nodes over the first `limit` tokens
    of every answer; acceptance of the top-1 token by position; Pearson of surrogate and committed length at 16 nodes;
    calibration of q."""
    arrays = store.open()
    block = drafter.config.block
    emitted, cycles = defaultdict(int), defaultdict(int)
    by_source: dict[str, dict] = defaultdict(lambda: {"emitted": defaultdict(int), "cycles": defaultdict(int)})
    reached, accepted = np.zeros(block - 1), np.zeros(block - 1)
    expected, committed = [], []
    bins = np.zeros((10, 3))  # count, sum of q, number accepted
    progress = Progress("evaluate", len(chosen))
    for number, s in enumerate(chosen, 1):
        end = min(s.length, s.prompt + limit)
        if end - s.prompt < 3:
            continue
        tokens = np.asarray(arrays["tokens"][s.start : s.start + end])
        taps = torch.from_numpy(np.array(arrays["taps"][s.start : s.start + end]))
        taps = taps.view(torch.bfloat16).to(embedding.device, torch.float32)
        ids, logprobs = lattices(drafter, embedding, taps, tokens, s.prompt, topk)
        chain, order, surrogate = [], [], []
        for i, anchor in enumerate(range(s.prompt, end - 1)):
            truth = tokens[anchor + 1 : anchor + block].tolist()
            hits = 0
            for k, token in enumerate(truth):
                reached[k] += 1
                good = ids[i][k][0] == token
                accepted[k] += good
                for rank in range(topk):
                    q = float(np.exp(logprobs[i][k][rank]))
                    bins[min(int(q * 10), 9)] += (1, q, ids[i][k][rank] == token)
                if not good:
                    break
                hits += 1
            chain.append(hits)
            where, total = insertion_order(ids[i], logprobs[i], truth, BUDGETS[-1])
            order.append(where)
            surrogate.append(total)
        for name in ("chain", *BUDGETS):
            at = 0  # index of the anchor
            while at < len(chain):
                hits = chain[at] if name == "chain" else sum(n <= name for n in order[at])
                hits = min(hits, len(chain) - 1 - at)  # the last token of an answer is emitted, never an anchor
                if name == 16:
                    expected.append(surrogate[at][min(16, len(surrogate[at])) - 1])
                    committed.append(hits + 1)
                at += hits + 1
                for counter in (emitted, by_source[s.source]["emitted"]):
                    counter[name] += hits + 1
                for counter in (cycles, by_source[s.source]["cycles"]):
                    counter[name] += 1
        if not quiet:
            progress.update(number)
    names = ("chain", *BUDGETS)
    return {
        "answers": len(chosen),
        "tau": {str(n): emitted[n] / max(cycles[n], 1) for n in names},
        "tau_by_source": {source: {str(n): c["emitted"][n] / max(c["cycles"][n], 1) for n in names}
                          for source, c in sorted(by_source.items())},
        "acceptance": (accepted / np.maximum(reached, 1)).tolist(),
        "pearson_16": float(np.corrcoef(expected, committed)[0, 1]) if len(set(committed)) > 1 else None,
        "calibration": [{"q": q / n, "accepted": hits / n, "count": int(n)} for n, q, hits in bins.tolist() if n],
    }


def table(result: dict) -> str:
    names = list(result["tau"])
    lines = [f"{'tau over ' + str(result['answers']) + ' answers':28}" + "".join(f"{n:>8}" for n in names)]
    for source, taus in {**result["tau_by_source"], "all": result["tau"]}.items():
        lines.append(f"{source:28}" + "".join(f"{taus[n]:8.2f}" for n in names))
    lines.append("acceptance by position       " + " ".join(f"{a:.2f}" for a in result["acceptance"]))
    pearson = result["pearson_16"]
    lines.append(f"Pearson(surrogate, committed) at 16 nodes: {'-' if pearson is None else f'{pearson:.3f}'}")
    lines.append("q -> accepted                " +
                 " ".join(f"{c['q']:.2f}->{c['accepted']:.2f}" for c in result["calibration"]))
    return "\n".join(lines)


def run(target_path: Path, features: Path, source: Path, device: str, every: bool, answers: int, tokens: int,
        topk: int, out: Path | None) -> None:
    store = FeatureStore(features)
    chosen = store.sequences if every else held_out(store.sequences)[1]
    if not chosen:
        raise UserError(f"{features}: no answer is held out (there are only {len(store.sequences)}); use --all")
    drafter = load_drafter(source, device).eval()
    if drafter.config.taps != store.taps or drafter.config.hidden != store.hidden:
        raise UserError(f"{source}: reads other features than {features} holds")
    embedding = read_embedding(target_path).to(device)
    result = replay(store, chosen[:answers] if answers else chosen, drafter, embedding, topk, tokens)
    print(table(result))
    if out:
        out.write_text(json.dumps(result, indent=1) + "\n")
