#!/usr/bin/env bash
# Trains the embedded drafter on one NVIDIA GPU in under nine minutes, on a machine without network where PyTorch is
# installed. What has to be carried there is prepared on a machine with network, in parts of at most 60 MiB.
#
# Usage: scripts/gpu_train.sh prepare ANSWERS    fills build/gpu-train: the target in parts, ANSWERS (of the step
#                                                'answers'), the Python packages beside PyTorch
#        scripts/gpu_train.sh [train]            features, training, evaluation, export
#
# The repository with its build/gpu-train is all that `train` reads. OUT= is a folder for the results (default:
# build/gpu-train/out): drafter.gguf, log.jsonl, evaluation.json. MINUTES= (default 5) is the time of the training
# step; further words of TRAIN_FLAGS= go to it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly WORK="build/gpu-train"
readonly MODEL="SmolLM2-135M-Instruct.Q4_1.gguf"
out="${OUT:-$WORK/out}"
minutes="${MINUTES:-5}"

prepare() {
    local answers=${1:?"usage: scripts/gpu_train.sh prepare ANSWERS"}
    scripts/setup.sh --training
    mkdir -p "$WORK/wheels"
    rm -f "$WORK/$MODEL".part*
    split -b 60M "deps/models/$MODEL" "$WORK/$MODEL.part"
    if [[ "$answers" == *.gz ]]; then cp "$answers" "$WORK/answers.jsonl.gz"
    else gzip -c "$answers" >"$WORK/answers.jsonl.gz"; fi
    # What training needs, in the same versions, without PyTorch and what comes with it.
    deps/training/bin/python -m pip freeze | grep -viE '^(torch|nvidia|cuda|triton)' >"$WORK/requirements.txt"
    python3 -m pip download --quiet --no-deps -d "$WORK/wheels" -r "$WORK/requirements.txt"
    du -sh "$WORK"
}

train() {
    local python="$WORK/venv/bin/python"
    command -v nvidia-smi >/dev/null || { echo "gpu_train: error: no NVIDIA GPU here" >&2; exit 1; }
    python3 -c 'import torch; assert torch.cuda.is_available()' ||
        { echo "gpu_train: error: this machine's python3 has no PyTorch that sees the GPU" >&2; exit 1; }
    mkdir -p "$out"
    cat "$WORK/$MODEL".part* >"$WORK/$MODEL"
    if [ ! -x "$python" ]; then
        python3 -m venv --system-site-packages "$WORK/venv"
        "$python" -m pip install --quiet --no-index --no-deps "$WORK"/wheels/*.whl
    fi
    step() {
        local name=$1 started=$SECONDS
        shift
        PYTHONPATH=training "$python" -m bastion_training "$name" --target "$WORK/$MODEL" "$@"
        echo "== $name: $((SECONDS - started)) s"
    }
    step features --device cuda --answers "$WORK/answers.jsonl.gz" --out "$WORK/features"
    # shellcheck disable=SC2086  # a list of words is meant
    step train --device cuda --features "$WORK/features" --out "$WORK/training" --minutes "$minutes" \
        --steps 1000000 --sequences 64 --anchors 64 ${TRAIN_FLAGS:-}
    step evaluate --device cuda --features "$WORK/features" --drafter "$WORK/training" --json "$out/evaluation.json"
    step export --checkpoint "$WORK/training" --out "$out/drafter.gguf"
    cp "$WORK/training/log.jsonl" "$out/"
}

case "${1:-train}" in
    prepare) prepare "${2:-}" ;;
    train) train ;;
    *) echo "gpu_train: error: expected prepare or train, got '$1'" >&2; exit 2 ;;
esac
