#!/usr/bin/env bash
# The numbers of docs/results: measures them into bench/results, and draws them from there.
#
#   bench/results.sh measure FOLDER    FOLDER holds gsm8k.jsonl, humaneval.jsonl, mbpp.jsonl, math500.jsonl,
#                                      mt_bench.jsonl and alpaca.jsonl (prompts, see docs/cli.md); half an hour
#   bench/results.sh draw              docs/results from bench/results; nothing is measured. raw.json and batch.json
#                                      stay as they are: docs/results.md quotes them
#
# LIMIT= (default 8) prompts of each set. The machine should have nothing else to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly OUT="bench/results"
readonly BASTION="build/release/bastion"

measure() {
    local folder=${1:?"usage: bench/results.sh measure FOLDER"} limit=${LIMIT:-8} sets=() name
    for name in gsm8k humaneval mbpp math500 mt_bench alpaca; do sets+=(--prompts "$folder/$name.jsonl"); done
    [ "$(wc -l <"$folder/gsm8k.jsonl")" -ge 64 ] || { echo "results: error: gsm8k.jsonl has fewer than 64 prompts" >&2; exit 2; }
    mkdir -p "$OUT"
    "$BASTION" calibrate
    "$BASTION" bench "${sets[@]}" --limit "$limit" --max-tokens 128 --repeat 3 --out "$OUT/greedy.json" \
        --methods ar,llama.cpp,chain,tree@curve,tree@static,tree@ema,tree@ema+static,tree:2,tree:4,tree:6,tree:8,tree:12,tree:16
    # The paper's own trees: from the drafter alone.
    "$BASTION" bench "${sets[@]}" --limit "$limit" --max-tokens 128 --repeat 3 --no-lookup --out "$OUT/drafter.json" \
        --methods ar,chain,tree@curve,tree@static,tree:2,tree:4,tree:8,tree:16,beam:2x7,tree:15
    "$BASTION" bench "${sets[@]}" --limit "$limit" --max-tokens 128 --repeat 3 --raw-confidence --out "$OUT/raw.json" \
        --methods ar,tree@curve,tree@static
    "$BASTION" bench "${sets[@]}" --limit "$((limit / 2))" --max-tokens 128 --repeat 2 --temperature 1 \
        --out "$OUT/sampled.json" --methods ar,chain,tree@curve,tree:4,tree:8
    "$BASTION" bench --prompts "$folder/gsm8k.jsonl" --limit 64 --max-tokens 128 --repeat 2 --concurrency 1,4,16,32,64 \
        --methods ar,chain,tree,tree:4,tree:8,tree:16 --out "$OUT/batch.json"
}

draw() {
    test -x build/report-venv/bin/python || python3 -m venv build/report-venv
    build/report-venv/bin/pip install --quiet -r bench/requirements.txt
    build/report-venv/bin/python bench/report.py "$OUT/greedy.json" "$OUT/drafter.json" "$OUT/sampled.json" --out docs/results >/dev/null
}

case "${1:-}" in
    measure) measure "${@:2}" ;;
    draw) draw ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
