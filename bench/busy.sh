#!/usr/bin/env bash
# How much slower answers are beside one busy process per core, and plain decoding by libllama beside them: alone and
# beside take turns, the fastest of each counts.
#
#   bench/busy.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${1:-3}
tokens_per_s() { # METHOD
    # Where libllama's text differs, that is said and no error.
    build/release/bastion bench --prompts docs/examples/prompts.jsonl --limit 2 --methods "$1" --max-tokens 64 \
        --out "$scratch/result.json" >/dev/null 2>&1
    python3 -c 'import json, sys
print(next(m["tokens_per_s"] for m in json.load(open(sys.argv[1]))["methods"] if m["name"] == sys.argv[2]))' \
        "$scratch/result.json" "$1"
}
scratch=$(mktemp -d)
busy=()
cleanup() { kill "${busy[@]}" 2>/dev/null || true; rm -rf "$scratch"; }
trap cleanup EXIT

for method in ar tree llama.cpp; do
    alone=0 beside=0
    for _ in $(seq "$rounds"); do
        speed=$(tokens_per_s "$method")
        alone=$(python3 -c "print(max($alone, $speed))")
        busy=()
        for _ in $(seq "$(nproc)"); do
            python3 -c 'while True: pass' &
            busy+=($!)
        done
        speed=$(tokens_per_s "$method")
        kill "${busy[@]}"
        wait "${busy[@]}" 2>/dev/null || true
        beside=$(python3 -c "print(max($beside, $speed))")
    done
    python3 -c "print(f'$method: {$alone:.0f} tokens/s alone, {$beside:.0f} beside $(nproc) busy processes: {$alone / $beside:.2f} times slower')"
done
