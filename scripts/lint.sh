#!/usr/bin/env bash
# Format, static analysis and include direction of our own files.
#
# Usage: scripts/lint.sh [format|tidy|layers]...   (default: all three; tidy needs a configured build/release)
#        scripts/lint.sh fix                       (reformats in place)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly BUILD="build/release"
readonly JOBS="${JOBS:-$(nproc)}"
readonly CLANG_VERSION=14  # formatting differs between releases; this is the one that counts

# tool NAME: the pinned release if it is installed, any other otherwise; installs it by apt as root.
tool() {
    local candidate
    for candidate in "$1-$CLANG_VERSION" "$1"; do
        if command -v "$candidate"; then return 0; fi
    done
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "lint: installing $1" >&2
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$1"; } \
            >/dev/null 2>&1 || true
        if command -v "$1"; then return 0; fi
    fi
    echo "lint: error: $1 is missing (on Debian or Ubuntu: sudo apt-get install $1)" >&2
    return 1
}

# Our sources, null-separated, whether tracked already or not.
sources() { find include src tests bench \( -name '*.h' -o -name '*.cpp' -o -name '*.inl' \) -print0 | sort -z; }

format() {
    local clang_format
    clang_format=$(tool clang-format) || return 1
    if ! sources | xargs -0 -r "$clang_format" --dry-run -Werror; then
        echo "lint: format: run scripts/lint.sh fix (checked by $("$clang_format" --version))" >&2
        return 1
    fi
    echo "lint: format: fine"
}

fix() {
    local clang_format
    clang_format=$(tool clang-format) || return 1
    sources | xargs -0 -r "$clang_format" -i
}

# The files of src/ that the build compiles, null-separated.
compiled_sources() {
    python3 - "$BUILD/compile_commands.json" <<'PY'
import json, os, sys
source = os.path.join(os.getcwd(), "src", "")
files = {entry["file"] for entry in json.load(open(sys.argv[1]))}
sys.stdout.write("".join(file + "\0" for file in sorted(files) if file.startswith(source)))
PY
}

tidy() {
    local clang_tidy log
    clang_tidy=$(tool clang-tidy) || return 1
    if [ ! -f "$BUILD/compile_commands.json" ]; then
        echo "lint: error: $BUILD/compile_commands.json is missing; run make lint, which configures first" >&2
        return 1
    fi
    log=$(mktemp)
    if compiled_sources | xargs -0 -r -n 1 -P "$JOBS" "$clang_tidy" -p "$BUILD" --quiet --extra-arg=-Wno-unknown-warning-option >"$log" 2>&1; then
        rm -f "$log"
        echo "lint: tidy: fine"
        return 0
    fi
    # A header's finding appears once for every file that includes it.
    grep -E ': (error|warning): ' "$log" | sort -u >&2 || cat "$log" >&2
    rm -f "$log"
    echo "lint: tidy: the findings above are errors" >&2
    return 1
}

layers() {
    python3 scripts/check_layers.py --self-test && python3 scripts/check_layers.py
}

if [ $# -eq 0 ]; then set -- layers format tidy; fi
failed=0
# Every step runs, so that one look shows everything that is wrong.
for step in "$@"; do
    case "$step" in
        layers) layers || failed=1 ;;
        format) format || failed=1 ;;
        tidy) tidy || failed=1 ;;
        fix) fix || failed=1 ;;
        *) echo "lint: error: unknown step '$step' (format, tidy, layers or fix)" >&2; exit 2 ;;
    esac
done
exit "$failed"
