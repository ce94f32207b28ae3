#!/usr/bin/env python3
"""What oneDNN (through PyTorch) needs for the matrix products of one pass of SmolLM2-135M, by rows: would it do instead of
kernels of our own?

    deps/training/bin/python bench/onednn.py      (scripts/setup.sh --training)

Every product has its own weights, as in a pass, so that nothing stays in a cache between two layers. Compare with
`bench_passes` on a BF16 file of the model, whose passes hold attention and all the rest too.
"""

import time

import torch

LAYERS, HIDDEN, FFN, VOCABULARY = 30, 576, 1536, 49152
SHAPES = [(HIDDEN, HIDDEN), (192, HIDDEN), (192, HIDDEN), (HIDDEN, HIDDEN), (FFN, HIDDEN), (FFN, HIDDEN), (HIDDEN, FFN)]


def main() -> None:
    torch.set_grad_enabled(False)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, oneDNN: {torch.backends.mkldnn.is_available()}")
    for kind in (torch.bfloat16, torch.float32):
        weights = [torch.randn(shape).to(kind) for _ in range(LAYERS) for shape in SHAPES]
        weights.append(torch.randn(VOCABULARY, HIDDEN).to(kind))
        one = 0.0
        for rows in (1, 8, 16, 64):
            inputs = {k: torch.randn(rows, k).to(kind) for k in (HIDDEN, FFN)}
            best = float("inf")
            for _ in range(7):
                start = time.perf_counter()
                for w in weights:
                    torch.nn.functional.linear(inputs[w.shape[1]], w)
                best = min(best, time.perf_counter() - start)
            one = one or best
            print(f"{str(kind):15} {rows:3} rows {best * 1e3:8.2f} ms, {best / one:5.2f} times one row")


if __name__ == "__main__":
    main()
