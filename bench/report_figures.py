"""The figures of the report: one function each, which draws nothing and returns None where there is nothing to show."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

import report_data as data  # noqa: E402

COLOURS = plt.get_cmap("tab20").colors
MEASURED, ROOFLINE, CALIBRATED, BY_PARTS = "black", "tab:orange", "tab:blue", "tab:green"
MOST_PANELS = 4  # of one scatter figure


def colour(results: data.Results, method: str) -> tuple:
    """The same for a method in every figure."""
    names = [m["name"] for m in results["methods"]]
    return COLOURS[names.index(method) % len(COLOURS)]


def grouped_bars(axes: plt.Axes, results: data.Results, values: data.BySet, label: str) -> None:
    width = 0.8 / len(values.rows)
    places = np.arange(len(values.columns))
    for i, (method, row) in enumerate(values.rows.items()):
        axes.bar(places - 0.4 + (i + 0.5) * width, row, width, label=method, color=colour(results, method))
    axes.set_xticks(places, values.columns, rotation=20 if len(places) > 4 else 0)
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def speedup(results: data.Results) -> Figure:
    speed, tau = data.by_set(results, "speedup_vs_ar"), data.by_set(results, "tau")
    figure, axes = plt.subplots(2, 1, figsize=(max(6, 1.7 * len(speed.columns)), 6.5), sharex=True)
    grouped_bars(axes[0], results, speed, "speed over ar")
    axes[0].axhline(1, color="grey", linewidth=0.8)
    grouped_bars(axes[1], results, tau, "tokens a cycle")
    axes[0].legend(ncols=4, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def sweep(results: data.Results) -> Figure | None:
    found = [s for s in data.sweeps(results) if len(s.fixed) > 1]
    if not found:
        return None
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.2 * rows), squeeze=False)
    for axes, s in zip(grid.flat, found):
        axes.plot(*zip(*s.fixed), marker="o", color="grey", label="fixed N")
        if s.oracle is not None:
            axes.axhline(s.oracle, color="black", linestyle=":", label="best fixed, chosen on other prompts")
        for name, speed in s.adaptive.items():
            axes.axhline(speed, color=colour(results, name), linestyle="--", label=name)
        axes.set_xscale("log", base=2)
        budgets = [nodes for nodes, _ in s.fixed]
        axes.set_xticks(budgets, [str(n) for n in budgets])
        axes.minorticks_off()
        axes.set_title(s.set, fontsize=10)
        axes.set_xlabel("nodes N")
        axes.set_ylabel("speed over ar")
        axes.grid(alpha=0.3)
    for axes in list(grid.flat)[len(found):]:
        axes.set_visible(False)
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)
    return figure


def latency(results: data.Results) -> Figure | None:
    curves = data.latency(results)
    if not curves:
        return None
    fit, parts = results["profile"]["fit"], results["profile"].get("parts")
    figure, grid = plt.subplots(1, len(curves), figsize=(4 * len(curves), 3.6), sharey=True, squeeze=False)
    for axes, curve in zip(grid.flat, curves):
        axes.plot(curve.nodes, curve.measured_ms, "o", color=MEASURED, markersize=4, label="measured")
        axes.plot(curve.nodes, curve.roofline_ms, "--", color=ROOFLINE,
                  label=f"roofline, RMSE {fit['rmse_before_ms']:.2f} ms")
        axes.plot(curve.nodes, curve.calibrated_ms, color=CALIBRATED,
                  label=f"calibrated, RMSE {fit['rmse_after_ms']:.2f} ms")
        if parts:
            axes.plot(curve.nodes, curve.by_parts_ms, ":", color=BY_PARTS,
                      label=f"by parts, RMSE {parts['rmse_ms']:.2f} ms")
        axes.set_title(f"context {curve.context}", fontsize=10)
        axes.set_xlabel("nodes N")
        axes.grid(alpha=0.3)
    grid.flat[0].set_ylim(bottom=0)  # of all of them, once all have been drawn
    grid.flat[0].set_ylabel("verification, ms")
    grid.flat[0].legend(fontsize=8)
    return figure


def topology(results: data.Results) -> Figure | None:
    pairs = data.topology_pairs(results)
    if not pairs:
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(max(6, 3 * len(pairs)), 3.4))
    places = np.arange(len(pairs))
    for axes, tree, beam, label in ((left, [p.tree_speedup for p in pairs], [p.beam_speedup for p in pairs],
                                     "speed over ar"),
                                    (right, [p.tree_tau for p in pairs], [p.beam_tau for p in pairs],
                                     "tokens a cycle")):
        for shift, values, name in ((-0.2, tree, "best-first"), (0.2, beam, "beam")):
            axes.bar_label(axes.bar(places + shift, values, 0.38, label=name), fmt="%.2f", fontsize=8)
        axes.set_xticks(places, [f"{p.beam}, N={p.nodes}" for p in pairs])
        axes.set_ylabel(label)
        axes.margins(y=0.1)
    left.legend(ncols=2, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def acceptance(results: data.Results) -> Figure | None:
    """Adaptive methods if there are any, else the first that draft."""
    adaptive = {m["name"] for m in results["methods"] if data.is_adaptive(m)}
    found = data.acceptances(results)
    found = ([a for a in found if a.method in adaptive] or found)[:MOST_PANELS]
    if not found:
        return None
    figure, grid = plt.subplots(1, len(found), figsize=(4 * len(found), 3.8), squeeze=False)
    jitter = np.random.default_rng(0)
    for axes, a in zip(grid.flat, found):
        promised, there_was = np.array(a.surrogate), np.array(a.committed)
        axes.scatter(promised, there_was + jitter.uniform(-0.25, 0.25, len(there_was)), s=5, alpha=0.3,
                     color=colour(results, a.method), edgecolors="none", rasterized=True)
        bins = np.floor(promised).astype(int)
        centres = [b for b in np.unique(bins) if np.count_nonzero(bins == b) >= 5]
        axes.plot([promised[bins == b].mean() for b in centres], [there_was[bins == b].mean() for b in centres],
                  color="black", marker="o", markersize=3, label="mean")
        most = max(promised.max(), there_was.max())
        axes.plot([1, most], [1, most], color="grey", linestyle=":", label="equal")
        correlation = "-" if a.pearson is None else f"{a.pearson:.2f}"
        axes.set_title(f"{a.method}: Pearson {correlation}, {a.cycles} trees", fontsize=10)
        axes.set_xlabel("promised length (surrogate)")
        axes.set_ylabel("committed length")
    grid.flat[0].legend(fontsize=8, loc="upper left")
    return figure


def costs(results: data.Results) -> Figure | None:
    found = data.cycle_costs(results)
    if not found:
        return None
    figure, axes = plt.subplots(figsize=(7, 1.2 + 0.35 * len(found)))
    names = [c.method for c in found]
    start = np.zeros(len(found))
    for stage in data.STAGES:
        values = np.array([c.ms[stage] for c in found])
        axes.barh(names, values, left=start, label=stage)
        start += values
    axes.invert_yaxis()
    axes.set_xlabel("mean cycle, ms")
    axes.legend(ncols=4, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def controllers(results: data.Results) -> Figure | None:
    found = data.controllers(results)
    if len(found) < 2:
        return None
    figure, grid = plt.subplots(1, 3, figsize=(10, 3.2))
    for axes, values, label, pattern in ((grid[0], [c.speedup for c in found], "speed over ar", "%.2f"),
                                         (grid[1], [c.tau for c in found], "tokens a cycle", "%.2f"),
                                         (grid[2], [c.mean_nodes for c in found], "mean nodes", "%.1f")):
        bars = axes.bar([c.method for c in found], values, color=[colour(results, c.method) for c in found])
        axes.bar_label(bars, fmt=pattern, fontsize=8)
        axes.margins(y=0.1)
        axes.set_ylabel(label)
        axes.tick_params(axis="x", rotation=20, labelsize=8)
    return figure


def contexts(results: data.Results) -> Figure | None:
    groups = results["contexts"]
    if len(groups) < 2:
        return None
    figure, axes = plt.subplots(figsize=(6.5, 4))
    labels = [data.context_label(g) for g in groups]
    for method in results["methods"]:
        speeds = [data.named(g["methods"], method["name"])["speedup_vs_ar"] for g in groups]
        axes.plot(labels, speeds, marker="o", markersize=4, label=method["name"], color=colour(results, method["name"]))
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel("speed over ar")
    axes.grid(alpha=0.3)
    axes.legend(ncols=2, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


FIGURES = (speedup, sweep, latency, topology, acceptance, costs, controllers, contexts)


def draw_all(name: str, results: data.Results, folder: Path, kind: str) -> dict[str, str]:
    """Writes `folder`/`name`-FIGURE.`kind` for every figure that has something to show; their names by figure. The same
    results give the same bytes."""
    files = {}
    with plt.rc_context({"svg.hashsalt": name, "figure.constrained_layout.use": True}):
        for draw in FIGURES:
            figure = draw(results)
            if figure is None:
                continue
            file = f"{name}-{draw.__name__}.{kind}"
            figure.savefig(folder / file, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": None})
            plt.close(figure)
            files[draw.__name__] = file
    return files
