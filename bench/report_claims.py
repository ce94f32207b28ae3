"""The paper's claims beside what a run gave: ratios, so that they can be compared across machines."""

from __future__ import annotations

import report_data as data


def mean_of_grid(profile: dict) -> float:
    grid = profile["grid"]
    return sum(point["verify_ms"] for point in grid) / len(grid)


def rows(results: data.Results, adaptive: str = "tree@curve") -> list[tuple[str, str, str]]:
    """(what, the paper, here), for those whose methods the run has; `adaptive`: the automatic tree that is compared."""
    methods = {m["name"]: m for m in results["methods"]}
    if adaptive not in methods or len(results["sets"]) < 2:
        return []
    tree = methods[adaptive]
    speed = tree["over_sets"]["speedup_vs_ar"]
    by_set = {s["name"]: data.named(s["methods"], adaptive)["speedup_vs_ar"] for s in results["sets"]}
    slowest = min(by_set, key=by_set.get)
    found = [(f"speed over plain decoding of our own, {adaptive}", "6.61 (GPUs)", f"{speed:.2f}"),
             (f"the slowest set ({slowest}) over plain decoding", "-", f"{by_set[slowest]:.2f}")]
    if "llama.cpp" in methods:
        found.append(("speed over llama.cpp's plain decoding", "-",
                      f"{speed / methods['llama.cpp']['over_sets']['speedup_vs_ar']:.2f}"))
    if tree["over_sets"].get("of_oracle"):
        shares = [row["of_oracle"] for s in results["sets"] if s.get("oracle")
                  for row in s["oracle"]["adaptive"] if row["name"] == adaptive]
        found.append(("adaptive over the best fixed budget in hindsight", "0.926 to 0.993",
                      f"{tree['over_sets']['of_oracle']:.3f} (sets: {min(shares):.3f} to {max(shares):.3f})"))
    if "chain" in methods:
        found.append(("tree over chain", "1.39", f"{speed / methods['chain']['over_sets']['speedup_vs_ar']:.2f}"))
    for pair in data.topology_pairs(results):
        if pair.beam_speedup:
            found.append((f"best-first over beam at {pair.nodes} nodes", "1.06 to 1.07",
                          f"{pair.tree_speedup / pair.beam_speedup:.2f} "
                          f"(tokens a cycle {pair.tree_tau / pair.beam_tau:.2f})"))
    if "acceptance" in tree and tree["acceptance"]["pearson"] is not None:
        found.append(("Pearson of promised and committed length", "0.79 or more", f"{tree['acceptance']['pearson']:.2f}"))
    profile = results["profile"]
    if profile:
        before, linear = profile["fit"]["rmse_before_ms"], profile["fit"]["rmse_after_ms"]
        after = profile["parts"]["rmse_ms"] if "parts" in profile else linear
        found.append(("calibration lowers the roofline's error by", "87 to 90 %",
                      f"{100 * (1 - after / before):.0f} % (linear: {100 * (1 - linear / before):.0f} %)"))
        found.append(("error after calibration, of the mean pass", "-", f"{100 * after / mean_of_grid(profile):.1f} %"))
        found.append(("time to calibrate", "70 s", f"{profile['seconds']:.1f} s"))
    time = tree["time"]
    total = sum(time[f"{stage}_ms"] for stage in data.STAGES)
    found.append(("building and control, of a cycle", "negligible", f"{100 * time['build_ms'] / total:.1f} %"))
    return found
