"""The parts of the report that need no matplotlib: what is taken out of the results, and the tables."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report  # noqa: E402
import report_claims  # noqa: E402
import report_data as data  # noqa: E402
import report_tables as tables  # noqa: E402

KINDS = {
    "ar": {"method": "ar"},
    "tree:4": {"method": "tree", "budget": 4},
    "tree:7": {"method": "tree", "budget": 7},
    "tree@curve": {"method": "tree", "budget": "auto", "controller": "curve"},
    "beam:2x9": {"method": "beam", "beam": {"width": 2, "depth": 9}},
    "llama.cpp": {"method": "reference"},
}


def totals(name: str, speedup: float, tau: float) -> dict:
    sums = {"name": name, "tokens": 100, "decode_s": 1.0, "tokens_per_s": 100 * speedup, "speedup_vs_ar": speedup,
            "tau": tau, "mean_nodes": 5.0, "mismatched_prompts": 0, "cycles": 50}
    if KINDS[name]["method"] != "reference":
        sums["time"] = {"draft_ms": 50.0, "build_ms": 5.0, "verify_ms": 200.0, "commit_ms": 10.0}
    if KINDS[name].get("budget") == "auto":
        sums["off_cycles"] = 10
    return sums


def example() -> data.Results:
    """Two sets; the beam is cut to a block of 4, which makes it 7 nodes."""
    speeds = {"ar": (1.0, 1.0), "tree:4": (1.5, 1.2), "tree:7": (2.0, 1.0), "tree@curve": (1.9, 1.25),
              "beam:2x9": (1.6, 0.9), "llama.cpp": (0.8, 0.9)}
    methods = []
    for name, (first, second) in speeds.items():
        methods.append(totals(name, (first + second) / 2, 2.5) | KINDS[name] |
                       {"over_sets": {"speedup_vs_ar": (first * second)**0.5, "tau": 2.5}})
    methods[3]["over_sets"]["of_oracle"] = 0.97
    methods[3]["acceptance"] = {"cycles": 40, "pearson": 0.8, "surrogate": [1.5, 2.5], "committed": [1, 3]}
    sets = []
    for i, (name, chosen) in enumerate((("sums", [7, 7]), ("poems", [4, 7]))):
        sets.append({"name": name, "prompts": 3, "methods": [totals(m, s[i], 2.5) for m, s in speeds.items()],
                     "oracle": {"tokens_per_s": 190.0, "speedup_vs_ar": 1.9, "chosen_nodes": chosen,
                                "hindsight": {"tokens_per_s": 200.0, "speedup_vs_ar": 2.0, "nodes": 7},
                                "adaptive": [{"name": "tree@curve", "of_oracle": 1.0, "of_hindsight": 0.95}]}})
    grid = [{"nodes": n, "context": c, "verify_ms": 2.0 * n, "roofline_ms": 1.0 * n, "fitted_ms": 1.9 * n}
            for c in (256, 64) for n in (8, 1)]
    return {"options": {"repeat": 3, "temperature": 0.0, "max-tokens": 64}, "methods": methods, "sets": sets,
            "contexts": [{"from": 0, "to": 256, "prompts": 5, "methods": sets[0]["methods"]},
                         {"from": 1024, "to": 4096, "prompts": 1, "methods": sets[1]["methods"]}],
            "machine": {"target": "T", "drafter": "D", "cpu": "C", "device": "cpu", "threads": 2, "kernels": "packed",
                        "ctx": 4096, "block_size": 4},
            "profile": {"grid": grid, "fit": {"a": 1.9, "b": 0.0, "rmse_before_ms": 3.0, "rmse_after_ms": 0.2},
                        "seconds": 1.5},
            "per_prompt": []}


class Claims(unittest.TestCase):
    def test_every_claim_that_the_run_can_answer_has_a_row(self) -> None:
        found = {what: here for what, _, here in report_claims.rows(example())}
        self.assertEqual(found["speed over llama.cpp's plain decoding"], f"{(1.9 * 1.25 / 0.8 / 0.9)**0.5:.2f}")
        self.assertEqual(found["adaptive over the best fixed budget in hindsight"], "0.970 (sets: 1.000 to 1.000)")
        self.assertEqual(found["the slowest set (poems) over plain decoding"], "1.25")
        self.assertEqual(found["calibration lowers the roofline's error by"], "93 % (linear: 93 %)")
        self.assertEqual(found["building and control, of a cycle"], "1.9 %")
        self.assertNotIn("tree over chain", found)

    def test_without_the_automatic_tree_there_are_none(self) -> None:
        self.assertEqual(report_claims.rows(example(), "tree@ema"), [])


class Data(unittest.TestCase):
    def test_sets_come_with_their_mean(self) -> None:
        speed = data.by_set(example(), "speedup_vs_ar")
        self.assertEqual(speed.columns, ["sums", "poems", "mean"])
        self.assertEqual(speed.rows["tree:7"][:2], [2.0, 1.0])
        self.assertAlmostEqual(speed.rows["tree:7"][2], 2.0**0.5)

    def test_one_set_has_no_mean(self) -> None:
        results = example()
        del results["sets"][1]
        self.assertEqual(data.by_set(results, "tau").columns, ["sums"])

    def test_a_sweep_has_fixed_budgets_in_order_and_the_oracle(self) -> None:
        sums, poems = data.sweeps(example())
        self.assertEqual(sums.fixed, [(4, 1.5), (7, 2.0)])
        self.assertEqual(sums.adaptive, {"tree@curve": 1.9})
        self.assertEqual((poems.oracle, poems.chosen, poems.hindsight), (1.9, [4, 7], (7, 2.0)))

    def test_without_fixed_budgets_there_is_no_sweep(self) -> None:
        results = example()
        results["methods"] = [m for m in results["methods"] if not data.is_fixed(m)]
        self.assertEqual(data.sweeps(results), [])

    def test_the_grid_is_sorted_by_context_and_nodes(self) -> None:
        curves = data.latency(example())
        self.assertEqual([c.context for c in curves], [64, 256])
        self.assertEqual((curves[0].nodes, curves[0].measured_ms), ([1, 8], [2.0, 16.0]))
        self.assertEqual((curves[0].calibrated_ms, curves[0].by_parts_ms), ([1.9, 1.9 * 8], []))
        self.assertEqual(data.latency(example() | {"profile": None}), [])

    def test_a_fit_by_parts_is_shown_where_there_is_one(self) -> None:
        results = example()
        results["profile"]["parts"] = {"rmse_ms": 0.1}
        results["profile"]["grid"][3]["fitted_ms"] = 2.05
        self.assertEqual(data.latency(results)[0].by_parts_ms[0], 2.05)
        text = tables.latency(results)
        self.assertIn("0.20 ms calibrated, 0.10 ms with factors for its parts.", text)
        self.assertIn("| 64 | 1 | 2.00 | 1.00 | 1.90 | 2.05 |", text)

    def test_a_beam_meets_the_tree_of_as_many_nodes(self) -> None:
        (pair,) = data.topology_pairs(example())
        self.assertEqual((pair.beam, pair.tree, pair.nodes), ("beam:2x9", "tree:7", 7))
        results = example()
        results["machine"]["block_size"] = 16
        self.assertEqual(data.topology_pairs(results), [], "19 nodes were not measured")

    def test_costs_are_of_the_mean_cycle(self) -> None:
        costs = data.cycle_costs(example())
        self.assertNotIn("llama.cpp", [c.method for c in costs])
        self.assertEqual(costs[0].ms, {"draft": 1.0, "build": 0.1, "verify": 4.0, "commit": 0.2})
        self.assertAlmostEqual(costs[0].total_ms(), 5.3)

    def test_controllers_say_what_they_reach_of_the_best_fixed_budget(self) -> None:
        (row,) = data.controllers(example())
        self.assertEqual((row.controller, row.off_share, row.of_oracle), ("curve", 0.2, 0.97))


class Tables(unittest.TestCase):
    def test_cells_cannot_break_a_table(self) -> None:
        self.assertEqual(tables.table(["a", "b"], [["x|y", "1"]]), "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n")
        self.assertEqual(tables.table(["a"], []), "")

    def test_every_section_has_its_numbers(self) -> None:
        text = tables.markdown({"run": example()}, {"run": {"speedup": "run-speedup.svg"}})
        for title, _ in tables.SECTIONS.values():
            self.assertIn(f"### {title}", text)
        for part in ("![Speed and tokens a cycle by set](run-speedup.svg)", "| tree:7 | 2.00x | 1.00x | 1.41x |",
                     "| poems | 4, 7 | 1.90x | 2.00x (N=7) | 100.0 % |", "| geometric mean |  |  |  | 97.0 % |",
                     "error 3.00 ms of the bare roofline, 0.20 ms calibrated", "| tree@curve | 40 | 0.800 |",
                     "| tree:7 / beam:2x9 | 7 |", "1k-4k (1)", "gave the text of `ar` for all 6 prompts"):
            self.assertIn(part, text)

    def test_sections_without_numbers_are_left_out(self) -> None:
        results = example() | {"profile": None, "contexts": []}
        results["methods"] = results["methods"][:1]
        text = tables.markdown({"run": results}, {})
        self.assertNotIn("Controllers", text)
        self.assertNotIn("roofline", text)
        self.assertNotIn("![", text)

    def test_other_texts_are_told(self) -> None:
        results = example()
        results["methods"][5]["mismatched_prompts"] = 2
        self.assertIn("Of 6 prompts the text differs from that of `ar`: llama.cpp on 2.", tables.speedup(results))


class CommandLine(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_report(self, *arguments: str) -> tuple[int, str, str]:
        before, sys.argv = sys.argv, ["report.py", *arguments]
        self.addCleanup(setattr, sys, "argv", before)
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            return report.main(), out.getvalue(), err.getvalue()

    def test_writes_the_tables_it_prints(self) -> None:
        (self.folder / "greedy.json").write_text(json.dumps(example()))
        report_folder = self.folder / "r"
        code, out, _ = self.run_report(str(self.folder / "greedy.json"), "--out", str(report_folder), "--no-figures")
        self.assertEqual(code, 0)
        self.assertEqual((report_folder / "report.md").read_text(), out)
        self.assertIn("## greedy", out)

    def test_refuses_what_is_no_result_in_one_sentence(self) -> None:
        for name, content in (("a.json", "{"), ("b.json", "[]"), ("c.json", '{"methods":[]}')):
            (self.folder / name).write_text(content)
            code, _, err = self.run_report(str(self.folder / name), "--out", str(self.folder), "--no-figures")
            self.assertEqual((code, err.count("\n")), (2, 1), err)
        code, _, err = self.run_report(str(self.folder / "none.json"), "--out", str(self.folder), "--no-figures")
        self.assertEqual(code, 2)
        self.assertIn("cannot be read", err)


if __name__ == "__main__":
    unittest.main()
