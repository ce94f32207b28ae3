"""python -m bastion_training COMMAND: the steps, in order: answers, features, train, evaluate, export; before them, where
prompts are few, prompts."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from .errors import UserError

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"
# What the default target's chat template puts before a user's message.
HEADER = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
          "<|im_start|>user\n")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def parser() -> argparse.ArgumentParser:
    show = argparse.ArgumentDefaultsHelpFormatter
    top = argparse.ArgumentParser(prog="bastion_training", description=__doc__)
    steps = top.add_subparsers(dest="command", required=True)

    def step(name: str, text: str, *, device: bool = True) -> argparse.ArgumentParser:
        p = steps.add_parser(name, help=text, description=text, formatter_class=show)
        p.add_argument("--target", type=Path, default=TARGET, help="GGUF file of the target")
        if device:
            p.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ..")
            p.add_argument("--threads", type=int, default=0, help="CPU threads; 0: PyTorch's choice")
        return p

    p = step("prompts", "the target completes the first words of prompts to prompts of its own", device=False)
    p.add_argument("--prompts", type=Path, nargs="+", required=True, help="JSON lines with `prompt`, `id`, `source`")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--bastion", type=Path, default=ROOT / "build/release/bastion", help="the program")
    p.add_argument("--header", default=HEADER, help="what the chat template puts before a user's message")
    p.add_argument("--count", type=int, default=6000, help="prompts to begin; three of four become one")
    p.add_argument("--temperature", type=float, default=1.0)
    p.add_argument("--top-p", type=float, default=0.95)
    p.add_argument("--max-tokens", type=int, default=110)
    p.add_argument("--concurrency", type=int, default=64)
    p.add_argument("--seed", type=int, default=11)

    p = step("answers", "the target answers prompts (through `bastion answers`)", device=False)
    p.add_argument("--prompts", type=Path, nargs="+", required=True, help="JSON lines with `prompt`, `id`, `source`")
    p.add_argument("--benchmarks", type=Path, nargs="*", default=[], help="files whose prompts must not be trained on")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--bastion", type=Path, default=ROOT / "build/release/bastion", help="the program")
    p.add_argument("--sampled", type=float, default=0.2, help="share of the prompts answered with --temperature")
    p.add_argument("--temperature", type=float, default=0.8)
    p.add_argument("--max-tokens", type=int, default=224)
    p.add_argument("--concurrency", type=int, default=32)
    p.add_argument("--limit", type=int, default=0, help="only the first so many prompts; 0: all")
    p.add_argument("--seed", type=int, default=1)

    p = step("features", "hidden states of the target over the answers")
    p.add_argument("--answers", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True, help="folder")
    p.add_argument("--taps", type=numbers, default=None, help="tapped layers (i: the input of layer i), e.g. 2,11,20")
    p.add_argument("--max-tokens", type=int, default=1024, help="longer sequences are cut")

    p = step("train", "trains the drafter; run again to go on from the last checkpoint")
    p.add_argument("--features", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True, help="folder of checkpoints and log")
    p.add_argument("--layers", type=numbers, default=None, help="target layers that the drafter's start from")
    p.add_argument("--block", type=int, default=8, help="anchor and masks")
    p.add_argument("--mask-token", type=int, default=5)
    p.add_argument("--vocabulary", type=int, default=8192, help="rows of the drafter's head")
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--minutes", type=float, default=math.inf, help="ends here if --steps are not done before")
    p.add_argument("--sequences", type=int, default=16, help="a step")
    p.add_argument("--together", type=int, default=4, help="sequences of a step computed at once on a CPU")
    p.add_argument("--anchors", type=int, default=32, help="a sequence")
    p.add_argument("--masks", type=numbers, default=[], help="masks a block, step by step in turn; default block - 1")
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--vector-lr", type=float, default=1e-3)
    p.add_argument("--decay", type=float, default=0.8, help="weight of a position over that of the one before")
    p.add_argument("--soft", type=float, default=0.5, help="share of distillation in the loss")
    p.add_argument("--train-head", action="store_true", help="train the head too (it starts from the target's rows)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--init", type=Path, default=None, help="start from this drafter (GGUF) and not from the target")

    p = step("evaluate", "what the drafter would accept of held-out answers")
    p.add_argument("--features", type=Path, required=True)
    p.add_argument("--drafter", type=Path, required=True, help="GGUF file, or the folder of a training")
    p.add_argument("--all", action="store_true", help="all answers, not only those held out of training")
    p.add_argument("--answers", type=int, default=0, help="at most so many; 0: all")
    p.add_argument("--tokens", type=int, default=128, help="of each answer")
    p.add_argument("--topk", type=int, default=8)
    p.add_argument("--json", type=Path, default=None, help="write the result there")

    p = step("export", "writes the GGUF file", device=False)
    p.add_argument("--checkpoint", type=Path, required=True, help="the folder of a training")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--type", default="q8_0", help="of the matrices: q8_0, q5_1, q5_0, q4_1, q4_0, f16, bf16, f32")
    p.add_argument("--head-type", default=None, help="of the head; default: --type")
    p.add_argument("--name", default="DFlash drafter")
    p.add_argument("--license", default="apache-2.0")
    p.add_argument("--description", default="Trained by BASTION's training package on the target's own answers")
    return top


def run(a: argparse.Namespace) -> None:
    if getattr(a, "threads", 0):
        import torch

        torch.set_num_threads(a.threads)
    if a.command == "prompts":
        from . import own_prompts

        own_prompts.run(a.bastion, a.target, a.prompts, a.out, a.header, a.count, a.temperature, a.top_p, a.max_tokens,
                        a.concurrency, a.seed)
    elif a.command == "answers":
        from . import answers

        answers.run(a.bastion, a.target, a.prompts, a.benchmarks, a.out, a.sampled, a.temperature, a.max_tokens,
                    a.concurrency, a.limit, a.seed)
    elif a.command == "features":
        from . import features

        features.run(a.target, a.answers, a.out, a.device, a.taps, a.max_tokens)
    elif a.command == "train":
        from . import train

        train.run(a.target, a.features, a.out, a.device, a)
    elif a.command == "evaluate":
        from . import evaluate

        evaluate.run(a.target, a.features, a.drafter, a.device, a.all, a.answers, a.tokens, a.topk, a.json)
    elif a.command == "export":
        from . import checkpoint

        checkpoint.export(a.checkpoint, a.out, a.target, a.type, a.head_type or a.type,
                          {"name": a.name, "license": a.license, "description": a.description})


def main() -> int:
    try:
        run(parser().parse_args())
    except UserError as error:
        print(f"bastion_training: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nbastion_training: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
