"""The whole pipeline on a tiny random target. Needs PyTorch and the built program (`make test-training`)."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "training"))

from bastion_training import evaluate, export, store, tree  # noqa: E402
from bastion_training.checkpoint import load_drafter  # noqa: E402
from bastion_training.drafter import Drafter  # noqa: E402
from bastion_training.muon import orthogonalised  # noqa: E402
from bastion_training.target import Target  # noqa: E402
from bastion_training.train import HeadLoss, Recipe, Trainer  # noqa: E402
from training.tests.test_pure import tiny_config, tiny_parameters  # noqa: E402

BASTION = ROOT / "build/release/bastion"
TARGET = ROOT / "build/release/test-models/tiny-qwen3.gguf"


def tiny_drafter() -> Drafter:
    config = tiny_config()
    drafter = Drafter(config)
    drafter.load_state_dict({n: torch.from_numpy(v * 0.3) for n, v in tiny_parameters(config).items()})
    return drafter.eval()


class Masks(unittest.TestCase):
    """What a block may see: features before its anchor and itself, nothing else."""

    def setUp(self) -> None:
        torch.manual_seed(3)
        self.drafter = tiny_drafter()
        self.taps = torch.randn(1, 20, 64)
        self.embedding = torch.randn(300, 32)
        self.anchors = torch.tensor([[4, 9, 15]])
        self.tokens = torch.tensor([[11, 12, 13]])

    def rows(self, taps=None, anchors=None, tokens=None, block=None) -> torch.Tensor:
        with torch.inference_mode():
            return self.drafter(self.taps if taps is None else taps, self.embedding,
                                self.anchors if anchors is None else anchors,
                                self.tokens if tokens is None else tokens, block)

    def test_features_at_and_after_the_anchor_do_not_matter(self) -> None:
        changed = self.taps.clone()
        changed[:, 9:] = torch.randn(1, 11, 64)
        torch.testing.assert_close(self.rows(changed)[:, :2], self.rows()[:, :2], rtol=0, atol=0)
        self.assertGreater((self.rows(changed)[:, 2] - self.rows()[:, 2]).abs().max(), 1e-3)

    def test_features_before_the_anchor_do_matter(self) -> None:
        changed = self.taps.clone()
        changed[:, 8] += 1
        difference = (self.rows(changed) - self.rows()).abs().amax(dim=(0, 2, 3))
        self.assertEqual(difference[0], 0)
        self.assertGreater(difference[1], 1e-3)

    def test_blocks_do_not_see_each_other(self) -> None:
        alone = torch.cat([self.rows(anchors=self.anchors[:, i : i + 1], tokens=self.tokens[:, i : i + 1])
                           for i in range(3)], dim=1)
        torch.testing.assert_close(alone, self.rows(), rtol=1e-5, atol=1e-5)

    def test_the_anchor_token_matters(self) -> None:
        self.assertGreater((self.rows(tokens=self.tokens + 1) - self.rows()).abs().min(dim=-1).values.max(), 1e-4)

    def test_padding_behind_the_last_anchor_does_not_matter(self) -> None:
        padded = torch.cat([self.taps, torch.zeros(1, 7, 64)], dim=1)
        torch.testing.assert_close(self.rows(padded), self.rows(), rtol=1e-5, atol=1e-5)

    def test_a_shorter_block_is_a_block_of_its_own(self) -> None:
        self.assertEqual(tuple(self.rows(block=3).shape), (1, 3, 2, 32))


class Parts(unittest.TestCase):
    def test_the_loss_in_chunks_is_the_dense_one(self) -> None:
        torch.manual_seed(1)
        rows = torch.randn(5, 4, dtype=torch.double, requires_grad=True)
        head = torch.randn(9, 4, dtype=torch.double, requires_grad=True)
        ids, weights = torch.randint(0, 9, (5, 3)), torch.rand(5, dtype=torch.double)
        shares = torch.rand(5, 3, dtype=torch.double)
        dense = torch.zeros(5, 9, dtype=torch.double).scatter_add(1, ids, shares)
        wanted = -(weights[:, None] * dense * (rows @ head.T).log_softmax(-1)).sum()
        loss, best = HeadLoss.apply(rows, head, ids, shares, weights, False, 2)
        torch.testing.assert_close(loss, wanted)
        torch.testing.assert_close(best, (rows @ head.T).argmax(-1))
        self.assertTrue(torch.autograd.gradcheck(
            lambda r, h: 3 * HeadLoss.apply(r, h, ids, shares, weights, False, 2)[0], (rows, head)))

    def test_a_step_in_parts_has_the_gradient_of_the_whole(self) -> None:
        torch.manual_seed(2)
        config = tiny_config()
        recipe = Recipe(layers=[0, 1], block=config.block, vocabulary=len(config.draft_ids))
        trainer = Trainer.__new__(Trainer)
        trainer.recipe, trainer.device = recipe, torch.device("cpu")
        trainer.drafter = Drafter(config)
        trainer.embedding = torch.randn(config.vocabulary, config.hidden)
        trainer.to_draft = torch.full((config.vocabulary,), -1)
        trainer.to_draft[config.draft_ids] = torch.arange(len(config.draft_ids))
        b, rows = config.block, 3
        known = torch.tensor(config.draft_ids)
        labels = known[torch.randint(0, len(known), (rows, 4, b - 1))]
        labels[0, :, 1:] = -1  # a short answer: its part has few masks
        whole = {"taps": torch.randn(rows, 9, len(config.taps) * config.hidden),
                 "anchors": torch.randint(1, 9, (rows, 4)), "anchor_tokens": torch.randint(0, config.vocabulary, (rows, 4)),
                 "labels": labels, "teacher_ids": known[torch.randint(0, len(known), (rows, 4, b - 1, 16))],
                 "teacher_logprobs": torch.randn(rows, 4, b - 1, 16).log_softmax(-1)}
        loss, hits = trainer.backward([whole], b)
        wanted = [p.grad.clone() for p in trainer.drafter.parameters() if p.grad is not None]
        trainer.drafter.zero_grad()
        parts = [{k: v[i:j] for k, v in whole.items()} for i, j in ((0, 1), (1, 3))]
        loss_of_parts, hits_of_parts = trainer.backward(parts, b)
        self.assertAlmostEqual(loss, loss_of_parts, places=4)
        torch.testing.assert_close(hits, hits_of_parts)
        for mine, theirs in zip([p.grad for p in trainer.drafter.parameters() if p.grad is not None], wanted):
            torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-4)  # products may be bfloat16

    def test_orthogonalised_matrices_have_singular_values_near_one(self) -> None:
        torch.manual_seed(1)
        for shape in ((16, 16), (16, 80), (80, 16)):
            values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
            self.assertTrue(0.6 < values.min() and values.max() < 1.3, (shape, values))


class Pipeline(unittest.TestCase):
    """The steps in order, as a user runs them."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        prompts = [{"id": i, "source": "even" if i % 2 == 0 else "odd", "prompt": f"one two three, {i} and {i * 7}"}
                   for i in range(60)]
        (cls.folder / "prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts))
        cls.step("answers", "--prompts", "prompts.jsonl", "--out", "answers.jsonl", "--bastion", BASTION,
                 "--max-tokens", 40, "--concurrency", 8)
        cls.step("features", "--answers", "answers.jsonl", "--out", "features", "--taps", "1,2")
        cls.log = cls.step("train", *cls.training(), "--steps", 60)
        cls.step("export", "--checkpoint", "training", "--out", "drafter.gguf", "--type", "f32")

    @staticmethod
    def training() -> list:
        return ["--features", "features", "--out", "training", "--layers", "0,1", "--block", 5, "--mask-token", 3,
                "--vocabulary", 200, "--sequences", 8, "--anchors", 8, "--masks", "2,4", "--train-head"]

    @classmethod
    def step(cls, command: str, *arguments) -> str:
        done = subprocess.run([sys.executable, "-m", "bastion_training", command, "--target", str(TARGET),
                               *map(str, arguments)], cwd=cls.folder, env={"PYTHONPATH": str(ROOT / "training"),
                                                                           "PATH": "/usr/bin:/bin"},
                              capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{command} ended with code {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout + done.stderr

    def test_answers_are_greedy_and_sampled(self) -> None:
        temperatures = [a.temperature for a in store.read_answers(self.folder / "answers.jsonl")]
        self.assertEqual(len(temperatures), 60)
        self.assertEqual(set(temperatures), {0.0, 0.8})

    def test_running_a_step_again_adds_nothing(self) -> None:
        before = {p: (self.folder / p).read_bytes() for p in ("answers.jsonl", "features/index.jsonl")}
        self.step("answers", "--prompts", "prompts.jsonl", "--out", "answers.jsonl", "--bastion", BASTION,
                  "--max-tokens", 40)
        self.step("features", "--answers", "answers.jsonl", "--out", "features", "--taps", "1,2")
        self.assertEqual({p: (self.folder / p).read_bytes() for p in before}, before)

    def test_the_teacher_agrees_with_greedy_answers(self) -> None:
        s = store.FeatureStore(self.folder / "features")
        arrays = s.open()
        greedy = {a.id for a in store.read_answers(self.folder / "answers.jsonl") if a.temperature == 0}
        hits = []
        for q in s.sequences:
            if q.id in greedy:
                rows = slice(q.start + q.prompt - 1, q.start + q.length - 1)
                likeliest = arrays["teacher_ids"][rows, 0]
                hits.extend(likeliest == arrays["tokens"][q.start + q.prompt : q.start + q.length])
        self.assertGreater(np.mean(hits), 0.98)  # all but near ties between two implementations

    def test_the_loss_falls(self) -> None:
        log = [json.loads(line) for line in (self.folder / "training/log.jsonl").read_text().splitlines()]
        self.assertEqual([row["step"] for row in log[:3]], [20, 40, 60])
        self.assertLess(log[2]["loss"], 0.9 * log[0]["loss"])

    def test_training_goes_on_where_it_stopped(self) -> None:
        out = self.step("train", *self.training(), "--steps", 80)
        self.assertIn("tau over", out)
        log = [json.loads(line)["step"] for line in (self.folder / "training/log.jsonl").read_text().splitlines()]
        self.assertEqual(log, [20, 40, 60, 80])

    def test_another_shape_does_not_overwrite_a_training(self) -> None:
        with self.assertRaisesRegex(AssertionError, "another folder"):
            self.step("train", *self.training(), "--layers", "1")

    def test_evaluation_of_the_file_and_of_the_checkpoint_agree(self) -> None:
        self.step("evaluate", "--features", "features", "--drafter", "drafter.gguf", "--all", "--json", "a.json")
        result = json.loads((self.folder / "a.json").read_text())
        self.assertGreater(result["tau"]["16"], result["tau"]["chain"])
        self.assertGreater(result["tau"]["chain"], 1.0)
        self.assertTrue(all(b >= a for a, b in zip(list(result["tau"].values())[1:], list(result["tau"].values())[2:])))

    def test_bastion_loads_the_file_and_drafts_what_pytorch_drafts(self) -> None:
        trace = self.folder / "trace.jsonl"
        greedy = [a for a in store.read_answers(self.folder / "answers.jsonl") if a.temperature == 0]
        answer = max(greedy, key=lambda a: len(a.tokens))
        number = int(answer.id.split("/")[1])
        done = subprocess.run([str(BASTION), "generate", "--target", str(TARGET), "--drafter",
                               str(self.folder / "drafter.gguf"), "--prompt",
                               f"one two three, {number} and {number * 7}", "--method", "tree", "--budget", "16",
                               "--max-tokens", "30", "--no-lookup", "--trace", str(trace), "--stats", "json"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        drafter = load_drafter(self.folder / "drafter.gguf").eval()
        target = Target(TARGET, half_products=False)
        sequence = answer.prompt + answer.tokens
        taps, _, _ = target.features([sequence], drafter.config.taps, [0], 1)[0]
        cycles = [json.loads(line) for line in trace.read_text().splitlines()]
        self.assertEqual([t for c in cycles for t in c["emitted"]], answer.tokens[1:30])
        drafted = 0
        for cycle in cycles:
            position = cycle["position"]
            ids, logprobs = evaluate.lattices(drafter, target.embedding, taps, np.asarray(sequence[: position + 2]),
                                              position, 8)
            depth = {0: 0}
            for i, node in enumerate(cycle["nodes"][1:], 1):
                depth[i] = node["depth"]
                parent = cycle["nodes"][node["parent"]]["logprob"]
                row = ids[0][node["depth"] - 1]
                self.assertIn(node["token"], row)
                wanted = logprobs[0][node["depth"] - 1][row.index(node["token"])]
                self.assertAlmostEqual(node["logprob"] - parent, wanted, delta=0.03)
                drafted += 1
        self.assertGreater(drafted, 50)

    def test_a_quantised_file_with_a_smaller_head_type_loads_too(self) -> None:
        self.step("export", "--checkpoint", "training", "--out", "q.gguf", "--type", "q8_0", "--head-type", "q4_1")
        done = subprocess.run([str(BASTION), "inspect", "--target", str(TARGET), "--drafter",
                               str(self.folder / "q.gguf")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Q4_1", done.stdout.upper())


if __name__ == "__main__":
    unittest.main()
