#!/usr/bin/env bash
# Checks the CUDA build on a machine with an NVIDIA GPU and the CUDA toolkit: builds for this GPU alone, runs the model
# tests, then compares and times texts of the embedded pair on the GPU. Prints where the minutes went.
#
# Usage: scripts/gpu_check.sh [build|check]...     (default: both)
# Needs no network once deps/ is there (make setup). TARGET=, DRAFTER= and DEVICE= choose another pair or device;
# OUT= is a folder for the results (default: build/gpu).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly BUILD="build/cuda"
readonly MODEL="deps/models/SmolLM2-135M-Instruct.Q4_1.gguf"
device="${DEVICE:-cuda0}"
out="${OUT:-build/gpu}"

timed() {
    local name=$1 started=$SECONDS
    shift
    "$@"
    echo "== $name: $((SECONDS - started)) s"
}

# A model that travelled in pieces (split -b) is put together again.
join_model() {
    if [ ! -f "$MODEL" ] && compgen -G "$MODEL.part*" >/dev/null; then cat "$MODEL".part* >"$MODEL"; fi
    if [ -z "${TARGET:-}" ] && [ ! -f "$MODEL" ]; then
        echo "gpu_check: error: $MODEL is missing (make setup fetches it)" >&2
        exit 1
    fi
}

configure() {
    local tests=OFF
    if printf '#include <gtest/gtest.h>\n' | c++ -x c++ -E - >/dev/null 2>&1; then tests=ON; fi
    if [ "$tests" = OFF ]; then echo "gpu_check: no GoogleTest here, tests are left out"; fi
    cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native -DBASTION_TESTS="$tests"
}

build() {
    command -v nvcc >/dev/null || export PATH="$PATH:/usr/local/cuda/bin"
    timed configure configure
    timed build cmake --build --preset cuda
}

check() {
    local models=()
    join_model
    mkdir -p "$out"
    if [ -n "${TARGET:-}" ]; then models+=(--target "$TARGET"); fi
    if [ -n "${DRAFTER:-}" ]; then models+=(--drafter "$DRAFTER"); fi
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

    # Library kernels round differently by shape; the tests named so compare within a tolerance.
    if [ -f "$BUILD"/tests/CTestTestfile.cmake ]; then
        timed "model tests, library kernels" \
            ctest --test-dir "$BUILD" --output-on-failure --no-tests=error -R '[Ll]ibrary'
    fi
    timed inspect "$BUILD/bastion" inspect "${models[@]}" --device "$device"
    timed generate "$BUILD/bastion" generate "${models[@]}" --device "$device" --max-tokens 128 --stats json \
        --prompt "Explain in three sentences why the sky is blue."
    timed calibrate "$BUILD/bastion" calibrate "${models[@]}" --device "$device" --out "$out/profile.json"
    timed bench "$BUILD/bastion" bench "${models[@]}" --device "$device" --profile "$out/profile.json" \
        --prompts docs/examples/prompts.jsonl --max-tokens 128 \
        --methods ar,chain,tree,tree:16,tree:64,llama.cpp --out "$out/bench.json"
    python3 - "$out/bench.json" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
prompts = len({entry["id"] for entry in report["per_prompt"]})
for method in report["methods"]:
    print(f"{method['name']:10} {method['tokens_per_s']:8.1f} tokens/s  {method['speedup_vs_ar']:5.2f}x  "
          f"tau {method['tau']:5.2f}  {prompts - method['mismatched_prompts']} of {prompts} texts equal")
PY
}

if [ $# -eq 0 ]; then set -- build check; fi
for step in "$@"; do
    case "$step" in
        build) build ;;
        check) check ;;
        *) echo "gpu_check: error: unknown step '$step' (build or check)" >&2; exit 2 ;;
    esac
done
