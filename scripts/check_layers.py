#!/usr/bin/env python3
"""Checks that includes under src/ and include/ point one way only (the layer map is in CONTRIBUTING.md).

Usage: scripts/check_layers.py [--self-test] [ROOT]

Exit code 0 if every include is allowed, 1 with one line for each that is not, 2 on bad usage.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

# Top to bottom; a file includes its own layer and those above it.
LAYERS = ["base", "text", "kernels", "model", "tree", "budget", "engine", "server", "cli"]
# Stages that meet in plain data of base/types.h and never know each other.
STRANGERS = {"model", "tree", "budget"}
# Where headers of the dependencies may appear, by the beginning of the path. The vocabulary is libllama's, so its
# files are checked with ggml's own reader before they get there; the program reports the versions it is made of.
MAY_INCLUDE = {
    "ggml": ["base/ggml_ptr.h", "kernels/", "model/", "text/tokenizer.cpp", "cli/bench", "cli/machine.cpp",
             "cli/version.cpp"],
    "gguf": ["model/", "text/tokenizer.cpp", "text/vocabulary.cpp"],
    "llama": ["text/tokenizer.cpp", "cli/bench", "cli/machine.cpp"],
}
# Folders of third parties that are on the include path.
THIRD_PARTY = ("nlohmann/", "jinja/")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCES = {".h", ".cpp", ".inl"}


def library_of(header):
    """The dependency whose header this is, or None."""
    name = header.split("/")[-1]
    if header == "base/ggml_ptr.h":
        return "ggml"
    if name == "gguf.h" and "/" not in header:
        return "gguf"
    if "/" in header:
        return None
    if name.startswith("ggml"):
        return "ggml"
    if name.startswith("llama"):
        return "llama"
    return None


def check_include(path, layer, header, quoted, exists):
    """Why `header` may not be included by the file at `path` (relative to src/ or include/), or None."""
    library = library_of(header)
    if library:
        if not any(path.startswith(prefix) for prefix in MAY_INCLUDE[library]):
            return f"headers of {library} belong in {', '.join(MAY_INCLUDE[library])} only"
        return None
    if not quoted or header.startswith(THIRD_PARTY):
        return None
    if not exists(header):
        return "no such header (paths are relative to src/ or include/)"
    target = header.split("/")[0]
    if target == "bastion":
        return None
    if layer == "bastion":
        return "the public headers include nothing but each other"
    if target not in LAYERS:
        return f"unknown layer '{target}' (known: {', '.join(LAYERS)})"
    if target != layer and {target, layer} <= STRANGERS:
        return f"{layer} and {target} never include each other; they meet in base/types.h"
    if LAYERS.index(target) > LAYERS.index(layer):
        return f"{layer} stands above {target} (order: {' > '.join(LAYERS)})"
    return None


def check_tree(root):
    """All violations under root as 'file:line: reason' strings, and the number of files looked at."""
    problems, files = [], 0
    exists = lambda header: (root / "src" / header).is_file() or (root / "include" / header).is_file()
    for top in ("include", "src"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SOURCES:
                continue
            files += 1
            path = file.relative_to(root / top).as_posix()
            where = file.relative_to(root).as_posix()
            layer = path.split("/")[0]
            if layer not in LAYERS and layer != "bastion":
                problems.append(f"{where}: unknown layer '{layer}' (known: {', '.join(LAYERS)})")
                continue
            text = file.read_text(encoding="utf-8")
            if file.suffix == ".h" and "#pragma once" not in text:
                problems.append(f"{where}: header without #pragma once")
            for match in INCLUDE.finditer(text):
                reason = check_include(path, layer, match[2], match[1] == '"', exists)
                if reason:
                    line = text.count("\n", 0, match.start(2)) + 1
                    problems.append(f"{where}:{line}: includes {match[2]}: {reason}")
    return problems, files


def self_test():
    """Builds small trees with one known fault each and expects exactly that fault to be found."""
    clean = {
        "include/bastion/status.h": "#pragma once\n#include <string>\n",
        "src/base/types.h": '#pragma once\n#include "bastion/status.h"\n',
        "src/base/ggml_ptr.h": "#pragma once\n#include <ggml.h>\n",
        "src/model/gguf.h": '#pragma once\n#include "base/ggml_ptr.h"\n#include <gguf.h>\n',
        "src/text/tokenizer.cpp": '#include <llama.h>\n#include "base/types.h"\n',
        "src/tree/build.h": '#pragma once\n#include "base/types.h"\n',
        "src/budget/roofline.h": "#pragma once\n",
        "src/engine/cycle.cpp": '#include "model/gguf.h"\n#include "tree/build.h"\n#include "budget/roofline.h"\n',
        "src/cli/bench.cpp": '#include <llama.h>\n#include "nlohmann/json.hpp"\n#include "engine/cycle.h"\n',
        "src/engine/cycle.h": "#pragma once\n",
    }
    faults = [
        ("src/base/types.h", '#pragma once\n#include "tree/build.h"\n', "base stands above tree"),
        ("src/tree/build.h", '#pragma once\n#include "model/gguf.h"\n', "never include each other"),
        ("src/budget/roofline.h", '#pragma once\n#include "tree/build.h"\n', "never include each other"),
        ("src/model/gguf.h", '#pragma once\n  #  include "budget/roofline.h"\n', "never include each other"),
        ("src/tree/build.h", "#pragma once\n#include <ggml-backend.h>\n", "headers of ggml"),
        ("src/budget/roofline.h", '#pragma once\n#include "base/ggml_ptr.h"\n', "headers of ggml"),
        ("src/engine/cycle.cpp", '#include "llama.h"\n', "headers of llama"),
        ("src/cli/main.cpp", "#include <llama-cpp.h>\n", "headers of llama"),
        ("src/text/chat.cpp", "#include <gguf.h>\n", "headers of gguf"),
        ("src/engine/cycle.cpp", '#include "cli/args.h"\n', "no such header"),
        ("include/bastion/status.h", '#pragma once\n#include "base/types.h"\n', "the public headers"),
        ("src/engine/cycle.h", "#include <vector>\n", "#pragma once"),
        ("src/misc/helper.h", "#pragma once\n", "unknown layer"),
    ]
    failures = 0
    for name, content, expected in [(None, None, None)] + faults:
        files = dict(clean)
        if name:
            files[name] = content
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                target = Path(folder) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            problems, _ = check_tree(Path(folder))
        if name:
            found = len(problems) == 1 and name in problems[0] and expected in problems[0]
        else:
            found = not problems
        if not found:
            failures += 1
            print(f"self-test: {name or 'clean tree'}: expected {expected or 'nothing'!r}, found {problems}")
    print(f"check_layers self-test: {len(faults) + 1 - failures} passed, {failures} failed")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true", help="check the checker")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if not (arguments.root / "src").is_dir():
        parser.error(f"{arguments.root} has no src folder")
    problems, files = check_tree(arguments.root)
    for problem in problems:
        print(problem)
    print(f"check_layers: {files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
