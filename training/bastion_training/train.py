"""Step 3: trains the drafter on stored features."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Iterable, Iterator

import numpy as np
import torch

from .config import DrafterConfig
from .drafter import Drafter, start_from_target
from .errors import UserError
from .checkpoint import load_drafter, load_state
from .evaluate import replay, table
from .muon import Muon
from .progress import Progress
from .store import FeatureStore, Sequence, held_out
from .target import Target, fast_bfloat16
from .vocabulary import choose_vocabulary


@dataclass(frozen=True)
class Recipe:
    """What decides the result. Ends after `steps` or `minutes`, whichever comes first; learning rates rise over the
    first `warmup` of the way and then fall in a straight line to zero."""

    layers: list[int]  # target layers that the drafter's start from
    block: int = 8
    vocabulary: int = 8192
    steps: int = 3000
    minutes: float = math.inf
    sequences: int = 16  # a step
    together: int = 4  # of them computed at once, of similar length, on a CPU: what they need should stay near the caches
    anchors: int = 32  # a sequence
    masks: list[int] | tuple[int, ...] = ()  # masks a block, step by step in turn; empty: block - 1
    lr: float = 3e-3  # of matrices (Muon)
    vector_lr: float = 1e-3  # of norms and the head (Adam)
    warmup: float = 0.02
    decay: float = 0.8  # weight of position k is decay ** (k - 1)
    soft: float = 0.5  # share of distillation from the target's distribution in the loss
    train_head: bool = False
    seed: int = 1


class Batches:
    """Draws sequences of similar length, likelier the longer their answers are, and anchors anywhere in them."""

    def __init__(self, store: FeatureStore, sequences: list[Sequence], recipe: Recipe, together: int) -> None:
        """`together`: sequences of a step that are drawn and computed at once."""
        self._arrays, self._recipe = store.open(), recipe
        self._sequences = sorted((s for s in sequences if s.length - s.prompt >= 2), key=lambda s: s.length)
        if not self._sequences:
            raise UserError("no answer of two or more tokens to train on")
        self._weights = np.array([s.length - s.prompt for s in self._sequences], float)
        self._parts = [min(together, recipe.sequences - at) for at in range(0, recipe.sequences, together)]
        span = 8 * max(self._parts)
        self._chunks = [np.arange(i, min(i + span, len(self._sequences)))
                        for i in range(0, len(self._sequences), span)]
        sums = np.array([self._weights[c].sum() for c in self._chunks])
        self._chances = sums / sums.sum()

    def draw(self, step: int, block: int, device: torch.device) -> Iterator[dict[str, torch.Tensor]]:
        """The parts of a step, of `together` sequences each and maybe a smaller last one."""
        for part, size in enumerate(self._parts):
            yield self._draw((self._recipe.seed, step, part), size, block, device)

    def _draw(self, seed: tuple[int, ...], size: int, block: int, device: torch.device) -> dict[str, torch.Tensor]:
        """taps [B, T, taps * h], anchors and anchor_tokens [B, A]; labels [B, A, block - 1] (-1: past the end) with the
        target's likeliest tokens there, teacher_ids and teacher_logprobs [B, A, block - 1, 16]."""
        rng = np.random.default_rng(seed)
        chunk = self._chunks[rng.choice(len(self._chunks), p=self._chances)]
        p = self._weights[chunk] / self._weights[chunk].sum()
        picked = [self._sequences[i] for i in rng.choice(chunk, size, p=p)]
        A = self._recipe.anchors
        anchors = np.stack([np.sort(rng.choice(np.arange(s.prompt, s.length - 1), A,
                                               replace=s.length - 1 - s.prompt < A)) for s in picked])
        T = int(anchors.max())
        rows = np.zeros((len(picked), T, self._arrays["taps"].shape[1]), np.uint16)
        for i, s in enumerate(picked):
            n = min(T, s.length)
            rows[i, :n] = self._arrays["taps"][s.start : s.start + n]
        at = anchors[..., None] + np.arange(1, block)
        lengths = np.array([s.length for s in picked])[:, None, None]
        starts = np.array([s.start for s in picked])[:, None, None]
        valid = at < lengths
        where = np.where(valid, at + starts, starts)
        # Row r's teacher is what the target said after row r, that is about the token of row r + 1.
        before = np.maximum(where - 1, 0)
        move = lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(device)  # noqa: E731
        return {
            "taps": move(rows).view(torch.bfloat16).float(),
            "anchors": move(anchors),
            "anchor_tokens": move(self._arrays["tokens"][anchors + starts[..., 0]].astype(np.int64)),
            "labels": move(np.where(valid, self._arrays["tokens"][where], -1).astype(np.int64)),
            "teacher_ids": move(self._arrays["teacher_ids"][before].astype(np.int64)),
            "teacher_logprobs": move(self._arrays["teacher_logprobs"][before].astype(np.float32)),
        }


class HeadLoss(torch.autograd.Function):
    """sum_r weights[r] * -sum_j shares[r, j] log softmax(rows[r] head^T)[ids[r, j]], and the likeliest id of every row [R].

    rows [R, h], head [V, h], ids and shares [R, n], weights [R]; `half`: products in bfloat16. The logits [R, V] never
    exist as a whole: the gradients are worked out `chunk` rows at a time, while those rows' logits are in cache.
    """

    @staticmethod
    def forward(ctx, rows, head, ids, shares, weights, half=False, chunk=512):
        kind = torch.bfloat16 if half else rows.dtype
        matrix = head.to(kind)
        loss, best = rows.new_zeros((), dtype=shares.dtype), torch.empty(len(rows), dtype=torch.long, device=rows.device)
        row_grad = torch.empty_like(rows)
        head_grad = torch.zeros_like(head) if ctx.needs_input_grad[1] else None
        for at in range(0, len(rows), chunk):
            part = slice(at, at + chunk)
            x, share = rows[part].to(kind), shares[part] * weights[part, None]
            logits = (x @ matrix.T).to(shares.dtype)
            best[part] = logits.argmax(-1)
            total = logits.logsumexp(-1, keepdim=True)
            loss += (share * (total - logits.gather(1, ids[part]))).sum()
            grad = logits.sub_(total).exp_().mul_(share.sum(-1, keepdim=True)).scatter_add_(1, ids[part], -share).to(kind)
            row_grad[part] = (grad @ matrix).to(rows.dtype)
            if head_grad is not None:
                head_grad += (grad.T @ x).to(head.dtype)
        ctx.save_for_backward(row_grad, head_grad)
        ctx.mark_non_differentiable(best)
        return loss, best

    @staticmethod
    def backward(ctx, grad, _):
        row_grad, head_grad = ctx.saved_tensors
        return row_grad * grad, None if head_grad is None else head_grad * grad, None, None, None, None, None


def loss_and_hits(drafter: Drafter, embedding: torch.Tensor, batch: dict[str, torch.Tensor], to_draft: torch.Tensor,
                  recipe: Recipe, block: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss as a weighted sum over the masks, the sum of the weights, and the share of blocks whose first 1, 2, ..
    top-1 tokens are all right [block - 1]."""
    device = batch["taps"].device.type
    half = device == "cpu" and fast_bfloat16()
    labels = batch["labels"]
    valid = labels >= 0
    with torch.autocast(device, torch.bfloat16, enabled=half):
        rows = drafter(batch["taps"], embedding, batch["anchors"], batch["anchor_tokens"], block)[valid]  # [R, h]
    weights = (recipe.decay ** torch.arange(block - 1, device=rows.device)).expand_as(labels)[valid]
    wanted = to_draft[labels[valid]]  # row of the head, -1 where the draft vocabulary lacks the token
    teacher = to_draft[batch["teacher_ids"][valid]]  # [R, 16]
    p = batch["teacher_logprobs"][valid].exp()
    ids = torch.cat([wanted[:, None], teacher], dim=1)
    shares = torch.cat([torch.full_like(p[:, :1], 1 - recipe.soft), recipe.soft * p], dim=1) * (ids >= 0)
    loss, best = HeadLoss.apply(rows.float(), drafter.output.weight, ids.clamp(min=0), shares, weights, half)
    hits = torch.zeros_like(labels, dtype=torch.bool)
    hits[valid] = best == wanted
    return loss, weights.sum(), hits.cumprod(-1).float().mean((0, 1))


class Trainer:
    def __init__(self, config: DrafterConfig, recipe: Recipe, target: Target, store: FeatureStore, folder: Path) -> None:
        self.recipe, self.folder, self.store = recipe, folder, store
        self.device = target.device
        self.embedding = target.embedding.float()
        torch.manual_seed(recipe.seed)
        self.drafter = Drafter(config).to(self.device)
        self.drafter.output.weight.requires_grad_(recipe.train_head)
        matrices = [p for n, p in self.drafter.named_parameters() if p.ndim == 2 and n != "output.weight"]
        vectors = [p for n, p in self.drafter.named_parameters()
                   if p.requires_grad and (p.ndim == 1 or n == "output.weight")]
        self.optimizers = [Muon(matrices, recipe.lr), torch.optim.AdamW(vectors, recipe.vector_lr, weight_decay=0.0)]
        self.to_draft = torch.full((config.vocabulary,), -1, dtype=torch.long, device=self.device)
        self.to_draft[config.draft_ids] = torch.arange(len(config.draft_ids), device=self.device)
        self.step, self.seconds = 0, 0.0

    @property
    def way(self) -> float:
        """Share of the training that is behind, 0 to 1."""
        return min(1.0, max(self.step / self.recipe.steps, self.seconds / 60 / self.recipe.minutes))

    def save(self) -> None:
        state = {"config": asdict(self.drafter.config), "recipe": asdict(self.recipe), "step": self.step,
                 "seconds": self.seconds, "drafter": self.drafter.state_dict(),
                 "optimizers": [o.state_dict() for o in self.optimizers]}
        torch.save(state, self.folder / "checkpoint.new")
        (self.folder / "checkpoint.new").replace(self.folder / "checkpoint.pt")

    def resume(self, state: dict) -> None:
        """Goes on from the folder's checkpoint."""
        if state["config"] != asdict(self.drafter.config):
            raise UserError(f"{self.folder}: holds a training of another shape; choose another folder")
        self.drafter.load_state_dict(state["drafter"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]

    def start_from(self, other: Drafter, source: Path) -> None:
        """Takes the weights of a trained drafter, read from `source`, of the same shape and draft vocabulary."""
        mine, theirs = asdict(self.drafter.config), asdict(other.config)
        for key in ("hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocabulary", "taps"):
            if mine[key] != theirs[key]:
                raise UserError(f"{source}: {key} is {theirs[key]}, this training has {mine[key]}")
        self.drafter.load_state_dict(other.state_dict())

    def backward(self, parts: Iterable[dict[str, torch.Tensor]], block: int) -> tuple[float, torch.Tensor]:
        """Gradients of the mean loss over all parts, whatever the parts are; returns that loss and the hits."""
        loss, weight, sequences = 0.0, 0.0, 0
        hits = torch.zeros(block - 1, device=self.device)
        for part in parts:
            part_loss, part_weight, part_hits = loss_and_hits(self.drafter, self.embedding, part, self.to_draft, self.recipe,
                                                              block)
            part_loss.backward()
            loss, weight = loss + part_loss.item(), weight + part_weight.item()
            hits += part_hits * len(part["anchors"])
            sequences += len(part["anchors"])
        for p in self.drafter.parameters():
            if p.grad is not None:
                p.grad /= weight
        return loss / weight, hits / sequences

    def run(self, sequences: list[Sequence], checkpoint_s: float = 300) -> list[float]:
        """Trains to the end, saving every `checkpoint_s`; returns the losses of this run's steps."""
        together = self.recipe.together if self.device.type == "cpu" else self.recipe.sequences
        batches = Batches(self.store, sequences, self.recipe, together)
        masks = self.recipe.masks or (self.drafter.config.block - 1,)
        progress = Progress("train", 1000, int(1000 * self.way), every_s=20)
        log = open(self.folder / "log.jsonl", "a", encoding="utf-8")
        losses, mean_loss, mean_hits = [], None, torch.zeros(self.drafter.config.block - 1, device=self.device)
        saved = time.monotonic()
        while self.way < 1:
            began = time.monotonic()
            scale = min(self.way / self.recipe.warmup, 1.0, (1 - self.way) / (1 - self.recipe.warmup)) or 1e-2
            for optimizer, lr in zip(self.optimizers, (self.recipe.lr, self.recipe.vector_lr)):
                optimizer.param_groups[0]["lr"] = lr * scale
            block = 1 + masks[self.step % len(masks)]
            for optimizer in self.optimizers:
                optimizer.zero_grad(set_to_none=True)
            loss, hits = self.backward(batches.draw(self.step, block, self.device), block)
            torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
            self.step += 1
            self.seconds += time.monotonic() - began
            losses.append(loss)
            if not math.isfinite(losses[-1]):
                raise UserError(f"the loss became {losses[-1]} at step {self.step}: lower --lr")
            mean_loss = losses[-1] if mean_loss is None else 0.95 * mean_loss + 0.05 * losses[-1]
            seen = mean_hits[: block - 1]
            seen.copy_(torch.where(seen > 0, 0.95 * seen + 0.05 * hits, hits))
            tau = 1 + mean_hits.sum().item()
            if self.step % 20 == 0:
                log.write(json.dumps({"step": self.step, "seconds": round(self.seconds), "loss": round(mean_loss, 4),
                                      "tau": round(tau, 4)}) + "\n")
                log.flush()
            progress.update(int(1000 * self.way), f"step {self.step}, loss {mean_loss:.3f}, "
                            f"tau over all anchors {tau:.3f}, {self.seconds / self.step:.2f} s a step")
            if time.monotonic() - saved > checkpoint_s:
                self.save()
                saved = time.monotonic()
        progress.close()
        self.save()
        return losses


def default_layers(target_layers: int, count: int = 3) -> list[int]:
    """The first and the last but a few say most about tokens and about what comes next; the rest lie between."""
    first, last = min(2, target_layers - 1), max(target_layers - 3, 0)
    return [round(first + i * (last - first) / max(count - 1, 1)) for i in range(count)]


def run(target_path: Path, features: Path, out: Path, device: str, options) -> None:
    """`options`: the command's flags, among them the fields of Recipe."""
    store = FeatureStore(features)
    training, held = held_out(store.sequences)
    target = Target(target_path, device, torch.float32 if device == "cpu" else torch.bfloat16)
    c = target.config
    known = {f.name for f in fields(Recipe)}
    chosen = {name: value for name, value in vars(options).items() if name in known and value is not None}
    recipe = Recipe(**{"layers": default_layers(c.num_hidden_layers), **chosen})
    out.mkdir(parents=True, exist_ok=True)
    state = load_state(out, target.device) if (out / "checkpoint.pt").exists() else None
    init = load_drafter(options.init, target.device) if options.init and not state else None
    ids = None  # added answers must not change the head's rows
    if state:
        ids = state["config"]["draft_ids"]
    elif init:
        ids = init.config.draft_ids
    config = drafter_config(target, store, training, recipe, options.mask_token, ids)
    trainer = Trainer(config, recipe, target, store, out)
    if state:
        trainer.resume(state)
    elif init:
        trainer.start_from(init, options.init)
    else:
        first = training[0]
        sample = store.open()["tokens"][first.start : first.start + first.length].tolist()
        start_from_target(trainer.drafter, target, recipe.layers, sample)
    trainer.run(training)
    if held:
        trainer.drafter.eval()
        print(table(replay(store, held[:20], trainer.drafter, trainer.embedding, quiet=True)))


def drafter_config(target: Target, store: FeatureStore, training: list[Sequence], recipe: Recipe,
                   mask_token: int, ids: list[int] | None) -> DrafterConfig:
    c = target.config
    if max(recipe.layers) >= c.num_hidden_layers or min(recipe.layers) < 0:
        raise UserError(f"--layers: the target has layers 0 to {c.num_hidden_layers - 1}")
    if min(recipe.sequences, recipe.together, recipe.anchors) < 1:
        raise UserError("--sequences, --together and --anchors must be at least 1")
    if recipe.block < 2 or any(not 1 <= m < recipe.block for m in recipe.masks):
        raise UserError("--block must be at least 2 and --masks between 1 and block - 1")
    if not 0 <= mask_token < c.vocab_size:
        raise UserError(f"--mask-token: the target has tokens 0 to {c.vocab_size - 1}")
    tokens = store.open()["tokens"]
    ids = ids or choose_vocabulary((tokens[s.start + s.prompt : s.start + s.length] for s in training),
                                   recipe.vocabulary, c.vocab_size)
    return DrafterConfig(
        hidden=c.hidden_size, layers=len(recipe.layers), heads=c.num_attention_heads, kv_heads=c.num_key_value_heads,
        head_dim=getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads, ffn=c.intermediate_size,
        rope_base=float(c.rope_parameters["rope_theta"]), eps=c.rms_norm_eps, context=c.max_position_embeddings,
        vocabulary=c.vocab_size, block=recipe.block, mask_token=mask_token, taps=store.taps, draft_ids=ids)
