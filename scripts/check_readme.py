#!/usr/bin/env python3
"""Runs the shell commands of README.md, so that what it shows works.

Usage: scripts/check_readme.py [--list] [--skip TEXT]... [README.md]

Every command in a fence marked `sh` counts, one a line (a backslash continues it). Commands run in order in the
repository's root, with a short text on standard input for the ones that talk. Exit code 1 if a command fails.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Typed at whatever a command asks; then the input ends.
INPUT = "What is the capital of France?\nAnd of Italy?\n"
TIMEOUT_S = 900


def commands(text):
    """The commands of all sh fences, comments and blank lines left out."""
    found = []
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"\s+#\s.*$", "", line).strip()
            if line and not line.startswith("#"):
                found.append(re.sub(r"\s+", " ", line))
    return found


def run(command):
    """Runs one command; prints what it said only if it failed."""
    started = time.monotonic()
    try:
        done = subprocess.run(command, shell=True, cwd=ROOT, input=INPUT, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S)
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        code, output = "timeout", (late.stdout or b"").decode(errors="replace")
    seconds = time.monotonic() - started
    print(f"{'ok    ' if code == 0 else 'FAILED'} {seconds:7.1f} s  {command}", flush=True)
    if code != 0:
        print(f"  exit code {code}; the end of its output:")
        print("\n".join("  | " + line for line in output.splitlines()[-30:]))
    return code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("readme", nargs="?", type=Path, default=ROOT / "README.md")
    parser.add_argument("--list", action="store_true", help="print the commands, run nothing")
    parser.add_argument("--skip", action="append", default=[], metavar="TEXT", help="leave out this exact command")
    arguments = parser.parse_args()

    found = commands(arguments.readme.read_text(encoding="utf-8"))
    if not found:
        print(f"check_readme: no sh fence with a command in {arguments.readme}")
        return 1
    unknown = [text for text in arguments.skip if text not in found]
    if unknown:
        print(f"check_readme: --skip {unknown[0]!r} is not a command of {arguments.readme}")
        return 2
    wanted = [command for command in found if command not in arguments.skip]
    if arguments.list:
        print("\n".join(wanted))
        return 0
    failed = [command for command in wanted if not run(command)]
    print(f"check_readme: {len(wanted) - len(failed)} commands ran, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
