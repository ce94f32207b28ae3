"""The numbers of the report as Markdown tables."""

from __future__ import annotations

import report_claims
import report_data as data


def table(head: list[str], rows: list[list[str]]) -> str:
    """Empty without rows. The first column is text, the others are numbers."""
    if not rows:
        return ""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)] + rows
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def times(value: float) -> str:
    return f"{value:.2f}x"


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def speedup(results: data.Results) -> str:
    speed, tau = data.by_set(results, "speedup_vs_ar"), data.by_set(results, "tau")
    text = "Speed over plain decoding (`ar`)" + \
        ("; the mean over sets is geometric" if len(results["sets"]) > 1 else "") + ":\n\n"
    text += table(["method"] + speed.columns, [[name] + [times(v) for v in row] for name, row in speed.rows.items()])
    text += "\nTokens a cycle (tau):\n\n"
    text += table(["method"] + tau.columns, [[name] + [f"{v:.2f}" for v in row] for name, row in tau.rows.items()])
    wrong = {m["name"]: m["mismatched_prompts"] for m in results["methods"] if m["mismatched_prompts"]}
    prompts = sum(s["prompts"] for s in results["sets"])
    if wrong:
        listed = ", ".join(f"{name} on {count}" for name, count in wrong.items())
        return text + f"\nOf {prompts} prompts the text differs from that of `ar`: {listed}.\n"
    return text + f"\nAll methods gave the text of `ar` for all {prompts} prompts.\n"


def sweep(results: data.Results) -> str:
    found = data.sweeps(results)
    if not found:
        return ""
    budgets = [nodes for nodes, _ in found[0].fixed]
    adaptive = list(found[0].adaptive)
    rows = [[s.set] + [times(speed) for _, speed in s.fixed] + [times(s.adaptive[name]) for name in adaptive]
            for s in found]
    text = table(["set"] + [f"N={n}" for n in budgets] + adaptive, rows)
    compared = [[s.set, ", ".join(map(str, s.chosen)), times(s.oracle),
                 f"{times(s.hindsight[1])} (N={s.hindsight[0]})"] +
                [share(s.of_oracle.get(name)) for name in adaptive] for s in found if s.oracle is not None]
    if not compared:
        return text
    if len(found) > 1 and len(compared) == len(found):
        of_oracle = {row.method: row.of_oracle for row in data.controllers(results)}
        compared.append(["geometric mean", "", "", ""] + [share(of_oracle.get(name)) for name in adaptive])
    return text + "\nThe best fixed budget N, chosen on one half of a set's prompts and timed on the other, both " \
        "ways (hindsight: chosen and timed on all), and what adaptive budgets reach of it:\n\n" + \
        table(["set", "N", "best fixed", "hindsight"] + [f"{name} / best" for name in adaptive], compared)


def latency(results: data.Results) -> str:
    curves = data.latency(results)
    if not curves:
        return ""
    profile = results["profile"]
    fit, parts = profile["fit"], profile.get("parts")
    text = f"T = {fit['a']:.3f} R + {fit['b']:.3f} ms; root mean square error {fit['rmse_before_ms']:.2f} ms of " \
        f"the bare roofline, {fit['rmse_after_ms']:.2f} ms calibrated"
    text += f", {parts['rmse_ms']:.2f} ms with factors for its parts.\n\n" if parts else ".\n\n"
    rows = []
    for c in curves:
        columns = [c.measured_ms, c.roofline_ms, c.calibrated_ms] + ([c.by_parts_ms] if parts else [])
        rows += [[str(c.context), str(c.nodes[i])] + [f"{column[i]:.2f}" for column in columns]
                 for i in range(len(c.nodes))]
    head = ["context", "nodes", "measured ms", "roofline ms", "calibrated ms"] + (["by parts ms"] if parts else [])
    return text + table(head, rows)


def topology(results: data.Results) -> str:
    rows = [[f"{p.tree} / {p.beam}", str(p.nodes), times(p.tree_speedup), times(p.beam_speedup),
             f"{100 * (p.tree_speedup / p.beam_speedup - 1):+.1f} %" if p.beam_speedup else "-",
             f"{p.tree_tau:.2f}", f"{p.beam_tau:.2f}"] for p in data.topology_pairs(results)]
    return table(["methods", "nodes", "best-first", "beam", "faster by", "tau best-first", "tau beam"], rows)


def acceptance(results: data.Results) -> str:
    rows = [[a.method, str(a.cycles), "-" if a.pearson is None else f"{a.pearson:.3f}"]
            for a in data.acceptances(results)]
    return table(["method", "trees", "Pearson"], rows)


def costs(results: data.Results) -> str:
    rows = [[c.method] + [f"{c.ms[stage]:.3f}" for stage in data.STAGES] + [f"{c.total_ms():.3f}"]
            for c in data.cycle_costs(results)]
    return table(["mean cycle, ms"] + list(data.STAGES) + ["total"], rows)


def controllers(results: data.Results) -> str:
    rows = [[c.method, c.controller, times(c.speedup), f"{c.tau:.2f}", f"{c.mean_nodes:.1f}", share(c.off_share),
             share(c.of_oracle)] for c in data.controllers(results)]
    return table(["method", "controller", "speed", "tau", "mean nodes", "not drafted", "of best fixed"], rows)


def contexts(results: data.Results) -> str:
    groups = results["contexts"]
    if len(groups) < 2:
        return ""
    labels = [f"{data.context_label(g)} ({g['prompts']})" for g in groups]
    text = "Tokens of the prompt (number of prompts) across; tokens a second and speed over `ar`:\n\n"
    rows = []
    for method in results["methods"]:
        cells = [data.named(g["methods"], method["name"]) for g in groups]
        rows.append([method["name"]] + [f"{c['tokens_per_s']:.1f} ({times(c['speedup_vs_ar'])})" for c in cells])
    return text + table(["method"] + labels, rows)


def claims(results: data.Results) -> str:
    return table(["what", "paper", "here"], [list(row) for row in report_claims.rows(results)])


#: The sections in their order: each but the first has a figure of the same name.
SECTIONS = {
    "claims": ("The paper's claims", claims),
    "speedup": ("Speed and tokens a cycle by set", speedup),
    "sweep": ("Fixed budgets, the best of them, and adaptive ones", sweep),
    "latency": ("Verification: measured, roofline, calibrated", latency),
    "topology": ("Best-first and beam search at equal nodes", topology),
    "acceptance": ("Promised and committed length", acceptance),
    "costs": ("Where the time of a cycle goes", costs),
    "controllers": ("Controllers", controllers),
    "contexts": ("Speed by context", contexts),
}


def heading(name: str, results: data.Results) -> str:
    options, machine = results["options"], results["machine"]
    alone = ", trees from the drafter alone" if options.get("no-lookup") else ""
    return f"## {name}\n\n{machine['target']} with {machine['drafter'] or 'no drafter'} on {machine['cpu']} " \
        f"({machine['device']}, {machine['threads']} threads, {machine['kernels']} kernels, context " \
        f"{machine['ctx']}), temperature {options['temperature']:g}, at most {options['max-tokens']} tokens an " \
        f"answer, best of {options['repeat']}{alone}.\n"


def markdown(all_results: dict[str, data.Results], figures: dict[str, dict[str, str]]) -> str:
    """`figures`: of each of the results, the file of each figure that was drawn."""
    text = "# Benchmark report\n"
    for name, results in all_results.items():
        text += "\n" + heading(name, results)
        for section, (title, numbers_of) in SECTIONS.items():
            numbers = numbers_of(results)
            if not numbers:
                continue
            text += f"\n### {title}\n\n"
            if file := figures.get(name, {}).get(section):
                text += f"![{title}]({file})\n\n"
            text += numbers
    return text
