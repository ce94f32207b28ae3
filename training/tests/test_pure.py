"""What needs no PyTorch: prompt filtering, vocabulary, trees, the store, the layout of the exported file."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import unittest
from itertools import product
from math import exp, log
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bastion_training import answers, export, own_prompts, prompts, store, tree, vocabulary  # noqa: E402
from bastion_training.config import DrafterConfig  # noqa: E402
from bastion_training.errors import UserError  # noqa: E402

LONG = "a train leaves the station at nine in the morning and travels sixty miles an hour until noon"


def prompt(text: str, id: str = "x") -> prompts.Prompt:
    return prompts.Prompt(id, "test", text)


class TemporaryFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class PromptFiltering(TemporaryFolder):
    def kept(self, texts: list[str], benchmarks: list[str]) -> list[str]:
        return [p.text for p in prompts.filter_prompts(map(prompt, texts), map(prompt, benchmarks)).kept]

    def test_a_benchmark_prompt_is_dropped_whatever_its_case_and_punctuation(self) -> None:
        self.assertEqual(self.kept(["Name two colours!", "Name three colours."], ["name TWO colours"]),
                         ["Name three colours."])

    def test_thirteen_words_in_common_are_too_many_and_twelve_are_not(self) -> None:
        w = LONG.split()
        shares_13, shares_12 = "Once " + " ".join(w[:13]), "Once " + " ".join(w[:12]) + " again"
        self.assertEqual(self.kept([shares_13, shares_12], [LONG]), [shares_12])

    def test_repeated_empty_and_overlong_prompts_are_dropped_and_counted(self) -> None:
        result = prompts.filter_prompts(map(prompt, ["One.", "one", " ", "x" * 50]), [], max_characters=40)
        self.assertEqual([p.text for p in result.kept], ["One."])
        self.assertEqual(result.dropped, {"repeated": 1, "empty": 1, "too long": 1})

    def test_the_first_turn_is_the_prompt(self) -> None:
        path = self.folder / "p.jsonl"
        path.write_text('{"turns":["a","b"],"id":7}\n\n{"prompt":"c"}\n')
        self.assertEqual([(p.id, p.source, p.text) for p in prompts.read_prompts(path)],
                         [("7", "p", "a"), ("3", "p", "c")])

    def test_a_line_without_a_prompt_is_named(self) -> None:
        path = self.folder / "p.jsonl"
        for line in ('{"text":"a"}', '{"turns":[]}', '{"prompt":3}', "[1]", "{"):
            path.write_text('{"prompt":"fine"}\n' + line + "\n")
            with self.assertRaisesRegex(UserError, "line 2"):
                prompts.read_prompts(path)

    def test_about_the_asked_share_is_sampled_and_always_the_same_prompts(self) -> None:
        many = [prompt(f"prompt number {i}") for i in range(2000)]
        chosen = [prompts.is_sampled(p, 0.2) for p in many]
        self.assertAlmostEqual(sum(chosen) / 2000, 0.2, delta=0.03)
        self.assertEqual(chosen, [prompts.is_sampled(p, 0.2) for p in many])
        self.assertFalse(any(prompts.is_sampled(p, 0) for p in many))


class Answers(TemporaryFolder):
    def test_greedy_and_sampled_prompts_go_to_the_program_separately(self) -> None:
        program = self.folder / "bastion"
        program.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in --prompts) p=$2;; --out) o=$2;; '
                           '--temperature) t=$2;; esac; shift; done\nsed "s/^/$t /" "$p" >>"$o"\n')
        program.chmod(0o755)
        source = self.folder / "p.jsonl"
        source.write_text("".join(json.dumps({"id": i, "prompt": f"prompt number {i}"}) + "\n" for i in range(40)))
        out = self.folder / "a.jsonl"
        with contextlib.redirect_stdout(io.StringIO()):
            answers.run(program, None, [source], [], out, 0.5, 0.8, 10, 4, 0, 1)
        lines = out.read_text().splitlines()
        self.assertEqual(len(lines), 40)
        for line in lines:
            temperature, row = line.split(" ", 1)
            text = json.loads(row)["prompt"]
            self.assertEqual(temperature, "0.8" if prompts.is_sampled(prompt(text), 0.5) else "0")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["a.jsonl", "bastion", "p.jsonl"])

    def test_a_failing_program_is_reported(self) -> None:
        program = self.folder / "bastion"
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
        source = self.folder / "p.jsonl"
        source.write_text('{"prompt":"a"}\n')
        with contextlib.redirect_stdout(io.StringIO()), self.assertRaisesRegex(UserError, "code 1"):
            answers.run(program, None, [source], [], self.folder / "a.jsonl", 0, 0, 10, 4, 0, 1)


class OwnPrompts(TemporaryFolder):
    def test_starts_are_the_first_words_of_long_prompts_each_once(self) -> None:
        texts = ["one two three four five six seven eight nine ten", "too short a prompt"]
        texts += [f"{n} " + LONG for n in range(30)] + ["0 " + LONG]
        given = [prompt(text, str(i)) for i, text in enumerate(texts)]
        starts = own_prompts.choose_starts(given, 100, 1)
        self.assertNotIn("test/1", starts)
        self.assertEqual(len(set(starts.values())), len(starts))
        for id, start in starts.items():
            self.assertTrue(texts[int(id.split("/")[1])].startswith(start + " "))
            self.assertIn(len(start.split()), (3, 4, 5))
        self.assertEqual(own_prompts.choose_starts(given, 100, 1), starts)
        self.assertEqual(len(own_prompts.choose_starts(given, 10, 1)), 10)

    def test_only_what_the_target_ended_by_itself_becomes_a_prompt(self) -> None:
        def line(id: str, text: str, stop: str) -> str:
            return json.dumps({"id": id, "text": text, "stop_reason": stop})

        starts = {"a": "How many", "b": "How many", "c": "Why do", "d": "Name a"}
        lines = [line("a", " days does a week have in all?", "eos"), line("b", " days does a week have in all?", "eos"),
                 line("c", " birds sing in the early morning so", "length"), line("d", " colour.", "eos"),
                 line("of another run", "", "eos")]
        self.assertEqual([(p.id, p.source, p.text) for p in own_prompts.finished(starts, lines)],
                         [("a", "own", "How many days does a week have in all?")])

    def test_the_program_gets_header_and_start_and_the_rest_is_put_together(self) -> None:
        program = self.folder / "bastion"
        program.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in --prompts) p=$2;; --out) o=$2;; esac; shift; done\n'
                           'grep -q "HEAD.a train leaves" "$p" || exit 3\n'
                           """sed 's/"prompt".*/"text": " and does not come back.", "stop_reason": "eos"}/' "$p" >"$o"\n""")
        program.chmod(0o755)
        source = self.folder / "p.jsonl"
        source.write_text(json.dumps({"id": 4, "prompt": LONG}) + "\n")
        out = self.folder / "own.jsonl"
        with contextlib.redirect_stdout(io.StringIO()):
            own_prompts.run(program, None, [source], out, "HEAD ", 10, 1.0, 0.95, 50, 4, 1)
        (written,) = prompts.read_prompts(out)
        self.assertEqual(written.source, "own")
        self.assertTrue(written.text.startswith("a train leaves"))
        self.assertTrue(written.text.endswith(" and does not come back."))


class Vocabulary(unittest.TestCase):
    def test_the_most_frequent_ids_are_chosen_in_ascending_order(self) -> None:
        ids = vocabulary.choose_vocabulary([np.array([5, 5, 9, 9, 9, 1])], 2, 12)
        self.assertEqual(ids, [5, 9])

    def test_ids_never_met_fill_up_what_is_left(self) -> None:
        self.assertEqual(vocabulary.choose_vocabulary([np.array([7])], 3, 12), [0, 1, 7])
        self.assertEqual(vocabulary.choose_vocabulary([np.array([7])], 99, 4 + 4), list(range(8)))

    def test_coverage_counts_tokens_not_ids(self) -> None:
        self.assertEqual(vocabulary.coverage([np.array([1, 1, 1, 2])], [1]), 0.75)


class Trees(unittest.TestCase):
    TOKENS = [[10, 11], [20, 21], [30, 31]]
    LOGPROBS = [[log(0.6), log(0.35)], [log(0.5), log(0.4)], [log(0.9), log(0.05)]]

    def every_path(self) -> list[tuple[float, int, tuple[int, ...]]]:
        paths = []
        for depth in (1, 2, 3):
            for ranks in product(range(2), repeat=depth):
                cost = -sum(self.LOGPROBS[i][r] for i, r in enumerate(ranks))
                paths.append((round(cost, 12), depth, ranks))
        return sorted(paths)

    def test_nodes_come_in_the_order_of_their_path_probability(self) -> None:
        for place, (_, depth, ranks) in enumerate(self.every_path(), 2):
            truth = [self.TOKENS[i][r] for i, r in enumerate(ranks)]
            order, _ = tree.insertion_order(self.TOKENS, self.LOGPROBS, truth, 64)
            self.assertEqual(len(order), depth)
            self.assertEqual(order[-1], place)

    def test_the_surrogate_is_the_sum_of_path_probabilities(self) -> None:
        _, surrogate = tree.insertion_order(self.TOKENS, self.LOGPROBS, [], 64)
        wanted = 1 + np.cumsum([exp(-cost) for cost, _, _ in self.every_path()])
        np.testing.assert_allclose(surrogate, [1, *wanted], rtol=1e-9)

    def test_a_token_outside_the_lattice_ends_the_path(self) -> None:
        order, _ = tree.insertion_order(self.TOKENS, self.LOGPROBS, [10, 99, 30], 64)
        self.assertEqual(order, [2])


class Store(TemporaryFolder):
    def filled(self, count: int) -> store.FeatureStore:
        s = store.FeatureStore(self.folder, [2, 5], 4, "t.gguf")
        for i in range(count):
            answer = store.Answer(f"a{i}", "test", 0.0, [1, 2], [3 + i, 4])
            s.append(answer, np.full((4, 8), i, np.uint16), np.full((4, store.TEACHER), i),
                     np.full((4, store.TEACHER), -0.5))
        s.close()
        return s

    def test_what_was_appended_is_read_back(self) -> None:
        self.filled(3)
        s = store.FeatureStore(self.folder)
        arrays = s.open()
        self.assertEqual([(q.id, q.start, q.prompt, q.length) for q in s.sequences],
                         [("a0", 0, 2, 4), ("a1", 4, 2, 4), ("a2", 8, 2, 4)])
        self.assertEqual(arrays["tokens"].tolist(), [1, 2, 3, 4, 1, 2, 4, 4, 1, 2, 5, 4])
        self.assertEqual(arrays["taps"][8:].tolist(), [[2] * 8] * 4)
        self.assertEqual(arrays["teacher_logprobs"].shape, (12, store.TEACHER))

    def test_a_sequence_cut_short_by_a_crash_is_written_again(self) -> None:
        self.filled(2)
        for name in ("taps.bf16", "tokens.i32"):
            with open(self.folder / name, "ab") as file:
                file.write(b"torn")
        with open(self.folder / "index.jsonl", "a") as file:
            file.write('{"id": "a2", "sou')
        s = store.FeatureStore(self.folder, [2, 5], 4, "t.gguf")
        self.assertEqual(len(s.sequences), 2)
        s.append(store.Answer("a2", "", 0.0, [7], [8]), np.zeros((2, 8), np.uint16), np.zeros((2, store.TEACHER)),
                 np.zeros((2, store.TEACHER)))
        s.close()
        arrays = store.FeatureStore(self.folder).open()
        self.assertEqual(arrays["tokens"].tolist()[-2:], [7, 8])
        self.assertEqual(len(arrays["taps"]), 10)

    def test_other_features_are_not_mixed_in(self) -> None:
        self.filled(1)
        with self.assertRaisesRegex(UserError, "another folder"):
            store.FeatureStore(self.folder, [3], 4, "t.gguf")

    def test_an_empty_folder_is_named(self) -> None:
        with self.assertRaisesRegex(UserError, "holds no features"):
            store.FeatureStore(self.folder / "none")

    def test_an_answers_last_line_cut_short_is_left_out_and_a_broken_one_named(self) -> None:
        path = self.folder / "a.jsonl"
        line = json.dumps({"id": "a", "prompt_tokens": [1], "tokens": [2]})
        path.write_text(line + "\n" + line[:10])
        self.assertEqual(len(list(store.read_answers(path))), 1)
        path.write_text(line + "\n{}\n")
        with self.assertRaisesRegex(UserError, "line 2"):
            list(store.read_answers(path))

    def test_held_out_answers_stay_held_out_when_others_are_added(self) -> None:
        many = [store.Sequence(f"a{i}", "", 0, 1, 2) for i in range(400)]
        few_training, few_held = store.held_out(many[:200])
        training, held = store.held_out(many)
        self.assertTrue(set(few_held) <= set(held) and set(few_training) <= set(training))
        self.assertTrue(0 < len(held) < 40)


def tiny_config() -> DrafterConfig:
    return DrafterConfig(hidden=32, layers=2, heads=2, kv_heads=1, head_dim=16, ffn=64, rope_base=1e4, eps=1e-5,
                         context=256, vocabulary=300, block=4, mask_token=3, taps=[1, 2], draft_ids=[0, 7, 299])


def tiny_parameters(c: DrafterConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    shapes = {"fc.weight": (c.hidden, 2 * c.hidden), "hidden_norm.weight": (c.hidden,),
              "output_norm.weight": (c.hidden,), "output.weight": (len(c.draft_ids), c.hidden)}
    for i in range(c.layers):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in {
            "attn_norm": (c.hidden,), "ffn_norm": (c.hidden,), "attn_q_norm": (c.head_dim,),
            "attn_k_norm": (c.head_dim,), "attn_q": (c.heads * c.head_dim, c.hidden),
            "attn_k": (c.head_dim, c.hidden), "attn_v": (c.head_dim, c.hidden),
            "attn_output": (c.hidden, c.heads * c.head_dim), "ffn_gate": (c.ffn, c.hidden),
            "ffn_up": (c.ffn, c.hidden), "ffn_down": (c.hidden, c.ffn)}.items()}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


class Export(TemporaryFolder):
    def setUp(self) -> None:
        super().setUp()
        self.target = self.folder / "target.gguf"
        out = gguf.GGUFWriter(self.target, "llama")
        out.add_tokenizer_model("gpt2")
        out.add_token_list([f"t{i}" for i in range(300)])
        out.add_token_types([1] * 300)
        out.add_token_merges(["t 1"])
        out.add_eos_token_id(2)
        out.add_add_bos_token(False)
        out.add_chat_template("{{ messages }}")
        out.add_tensor("token_embd.weight", np.zeros((300, 32), np.float32))
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()

    def written(self, matrix_type: str, head_type: str) -> Path:
        path = self.folder / "drafter.gguf"
        config = tiny_config()
        export.write(path, config, tiny_parameters(config), self.target, matrix_type, head_type, {"name": "tiny"})
        return path

    def test_the_file_has_the_keys_of_the_format(self) -> None:
        reader = gguf.GGUFReader(self.written("f32", "f32"))
        wanted = {"general.architecture": "dflash", "general.name": "tiny", "dflash.block_count": 2,
                  "dflash.embedding_length": 32, "dflash.feed_forward_length": 64, "dflash.attention.head_count": 2,
                  "dflash.attention.head_count_kv": 1, "dflash.attention.key_length": 16, "dflash.block_size": 4,
                  "dflash.target_layers": [1, 2], "dflash.vocab_size": 300, "tokenizer.ggml.mask_token_id": 3,
                  "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.add_bos_token": False,
                  "tokenizer.chat_template": "{{ messages }}"}
        self.assertEqual({key: reader.get_field(key).contents() for key in wanted}, wanted)
        self.assertEqual(reader.get_field("tokenizer.ggml.tokens").contents()[299], "t299")

    def test_tensors_have_the_asked_types_and_norms_stay_exact(self) -> None:
        types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(self.written("q8_0", "q4_0")).tensors}
        self.assertEqual(types.pop("output.weight"), "Q4_0")
        self.assertEqual(types.pop("d2t"), "I64")
        for name, type_name in types.items():
            self.assertEqual(type_name, "F32" if "norm" in name else "Q8_0", name)

    def test_what_was_written_is_read_back(self) -> None:
        config, parameters = export.read(self.written("f32", "f32"))
        wanted = tiny_config()
        self.assertEqual({**vars(config), "eps": 0}, {**vars(wanted), "eps": 0})
        for name, values in tiny_parameters(wanted).items():
            np.testing.assert_array_equal(parameters[name], values)

    def test_quantised_weights_stay_near(self) -> None:
        _, parameters = export.read(self.written("q8_0", "q8_0"))
        for name, values in tiny_parameters(tiny_config()).items():
            np.testing.assert_allclose(parameters[name], values, atol=np.abs(values).max() / 100)

    def test_a_failed_export_leaves_the_old_file(self) -> None:
        path = self.written("f32", "f32")
        before = path.read_bytes()
        with self.assertRaises(UserError):
            export.write(path, tiny_config(), {}, self.target, "f32", "f32", {})
        self.assertEqual(path.read_bytes(), before)

    def test_a_file_that_is_no_drafter_is_refused(self) -> None:
        with self.assertRaisesRegex(UserError, "is this a DFlash drafter"):
            export.read(self.target)


if __name__ == "__main__":
    unittest.main()
