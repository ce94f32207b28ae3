"""What the report shows, taken out of the results of `bastion bench --out` as plain lists. No drawing, no printing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

Results = dict  # one file: docs/cli.md, section bench

STAGES = ("draft", "build", "verify", "commit")


class BadResults(Exception):
    """One sentence for the user: a file that is no results of bastion bench."""


def load(path: Path) -> Results:
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadResults(f"'{path}' cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadResults(f"'{path}' is not JSON: {error}") from error
    wanted = ("options", "methods", "sets", "contexts", "machine", "profile", "per_prompt")
    missing = [key for key in wanted if not isinstance(results, dict) or key not in results]
    if missing:
        raise BadResults(f"'{path}' has no '{missing[0]}', expected the results of bastion bench --out without "
                         "--concurrency")
    return results


def is_adaptive(method: dict) -> bool:
    return method["method"] == "tree" and method["budget"] == "auto"


def is_fixed(method: dict) -> bool:
    return method["method"] == "tree" and method["budget"] != "auto"


def named(methods: list[dict], name: str) -> dict:
    return next(method for method in methods if method["name"] == name)


@dataclass
class BySet:
    """A value for each method and set, and the mean over sets at the end of each row."""

    columns: list[str]
    rows: dict[str, list[float]]


def by_set(results: Results, key: str) -> BySet:
    """`key`: speedup_vs_ar (its mean over sets is geometric) or tau. With one set there is no column of means."""
    sets = results["sets"]
    several = len(sets) > 1
    rows = {}
    for method in results["methods"]:
        values = [named(s["methods"], method["name"])[key] for s in sets]
        rows[method["name"]] = values + ([method["over_sets"][key]] if several else [])
    return BySet([s["name"] for s in sets] + (["mean"] if several else []), rows)


@dataclass
class Sweep:
    """Speed over plain decoding of one set: fixed budgets by their nodes, adaptive ones, the best fixed budget."""

    set: str
    fixed: list[tuple[int, float]]
    adaptive: dict[str, float]
    of_oracle: dict[str, float]
    oracle: float | None  # chosen on the other half of the prompts
    chosen: list[int]
    hindsight: tuple[int, float] | None


def sweeps(results: Results) -> list[Sweep]:
    """One for each set; none where no fixed budget was measured."""
    fixed = {m["name"]: m["budget"] for m in results["methods"] if is_fixed(m)}
    adaptive = [m["name"] for m in results["methods"] if is_adaptive(m)]
    if not fixed:
        return []
    found = []
    for s in results["sets"]:
        speed = {m["name"]: m["speedup_vs_ar"] for m in s["methods"]}
        oracle = s.get("oracle")
        found.append(Sweep(
            set=s["name"],
            fixed=sorted((nodes, speed[name]) for name, nodes in fixed.items()),
            adaptive={name: speed[name] for name in adaptive},
            of_oracle={a["name"]: a["of_oracle"] for a in oracle["adaptive"]} if oracle else {},
            oracle=oracle["speedup_vs_ar"] if oracle else None,
            chosen=oracle["chosen_nodes"] if oracle else [],
            hindsight=(oracle["hindsight"]["nodes"], oracle["hindsight"]["speedup_vs_ar"]) if oracle else None))
    return found


@dataclass
class LatencyCurve:
    context: int
    nodes: list[int]
    measured_ms: list[float]
    roofline_ms: list[float]
    calibrated_ms: list[float]  # a R + b
    by_parts_ms: list[float]  # the fit by parts; empty where the profile has none


def latency(results: Results) -> list[LatencyCurve]:
    """The grid of the profile by context; empty if no method went by one."""
    profile = results["profile"]
    if profile is None:
        return []
    a, b = profile["fit"]["a"], profile["fit"]["b"]
    by_parts = "parts" in profile
    curves = []
    for context in sorted({point["context"] for point in profile["grid"]}):
        points = sorted((p for p in profile["grid"] if p["context"] == context), key=lambda p: p["nodes"])
        curves.append(LatencyCurve(context, [p["nodes"] for p in points], [p["verify_ms"] for p in points],
                                   [p["roofline_ms"] for p in points], [a * p["roofline_ms"] + b for p in points],
                                   [p["fitted_ms"] for p in points] if by_parts else []))
    return curves


@dataclass
class TopologyPair:
    """Beam search and best-first trees of as many nodes, each with its mean over sets."""

    beam: str
    tree: str
    nodes: int
    beam_speedup: float
    tree_speedup: float
    beam_tau: float
    tree_tau: float


def topology_pairs(results: Results) -> list[TopologyPair]:
    """Every beam with the fixed budget that is its number of nodes; beams without one are left out. A beam of width W
    and depth D, cut to the block, has 1 + W D nodes."""
    fixed = {m["budget"]: m for m in results["methods"] if is_fixed(m)}
    pairs = []
    for beam in results["methods"]:
        if beam["method"] != "beam":
            continue
        depth = min(beam["beam"]["depth"], max(results["machine"]["block_size"] - 1, 0))
        nodes = 1 + beam["beam"]["width"] * depth
        if tree := fixed.get(nodes):
            one, two = beam["over_sets"], tree["over_sets"]
            pairs.append(TopologyPair(beam["name"], tree["name"], nodes, one["speedup_vs_ar"], two["speedup_vs_ar"],
                                      one["tau"], two["tau"]))
    return pairs


@dataclass
class Acceptance:
    """Trees of one method, drafted or copied: the committed length that was promised, and the one there was."""

    method: str
    surrogate: list[float]
    committed: list[int]
    cycles: int  # of which the lists hold some
    pearson: float | None  # of all cycles


def acceptances(results: Results) -> list[Acceptance]:
    return [Acceptance(m["name"], a["surrogate"], a["committed"], a["cycles"], a["pearson"])
            for m in results["methods"] if (a := m.get("acceptance"))]


@dataclass
class CycleCost:
    method: str
    ms: dict[str, float]  # by stage, of the mean cycle

    def total_ms(self) -> float:
        return sum(self.ms.values())


def cycle_costs(results: Results) -> list[CycleCost]:
    return [CycleCost(m["name"], {stage: m["time"][f"{stage}_ms"] / m["cycles"] for stage in STAGES})
            for m in results["methods"] if "time" in m and m["cycles"] > 0]


@dataclass
class ControllerRow:
    method: str
    controller: str
    speedup: float
    tau: float
    mean_nodes: float
    off_share: float  # of the cycles
    of_oracle: float | None


def controllers(results: Results) -> list[ControllerRow]:
    return [ControllerRow(m["name"], m["controller"], m["over_sets"]["speedup_vs_ar"], m["over_sets"]["tau"],
                          m["mean_nodes"], m["off_cycles"] / max(m["cycles"], 1), m["over_sets"].get("of_oracle"))
            for m in results["methods"] if is_adaptive(m)]


def context_label(context: dict) -> str:
    def text(tokens: int) -> str:
        return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)

    return f"{text(context['from'])}-{text(context['to'])}"
