#!/usr/bin/env python3
"""Draws the figures of one or more `bastion bench --out RESULTS.json` and writes the same numbers as Markdown tables.

The figures need matplotlib (bench/requirements.txt), the tables need Python alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import report_data
import report_tables


def draw(all_results: dict[str, report_data.Results], folder: Path, kind: str) -> dict[str, dict[str, str]]:
    """File names of the figures, by results and figure."""
    try:
        import report_figures
    except ImportError as error:
        raise report_data.BadResults(f"figures need {error.name}: pip install -r bench/requirements.txt, or pass "
                                     "--no-figures") from error
    return {name: report_figures.draw_all(name, results, folder, kind) for name, results in all_results.items()}


def run(arguments: argparse.Namespace) -> None:
    all_results: dict[str, report_data.Results] = {}
    for path in arguments.results:
        if path.stem in all_results:
            raise report_data.BadResults(f"two results are called '{path.stem}', expected different names")
        all_results[path.stem] = report_data.load(path)
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        figures = {} if arguments.no_figures else draw(all_results, arguments.out, arguments.format)
        text = report_tables.markdown(all_results, figures)
        (arguments.out / "report.md").write_text(text, encoding="utf-8")
    except OSError as error:
        raise report_data.BadResults(f"'{arguments.out}' cannot be written: {error.strerror}") from error
    print(text, end="")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS.json", help="written by bastion bench --out")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="gets report.md and the figures")
    parser.add_argument("--format", choices=("svg", "png"), default="svg", help="of the figures")
    parser.add_argument("--no-figures", action="store_true", help="tables only")
    try:
        run(parser.parse_args())
    except report_data.BadResults as error:
        print(f"report: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
