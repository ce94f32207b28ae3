"""Best-first trees over a lattice, as src/tree/build.cpp grows them (paper section 3), for replaying answers."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def insertion_order(tokens: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]], truth: Sequence[int],
                    nodes: int) -> tuple[list[int], list[float]]:
    """Grows a tree of `nodes` nodes (root included) over the lattice `tokens`, `logprobs` [depth][rank].

    Returns where the tokens that really followed were inserted (truth[i]'s node is the n-th, root = 1; the list ends
    at the first that is not in the tree) and the surrogate after 1, 2, .. nodes: the sum of the path probabilities.
    """
    from math import exp

    depth_limit = len(tokens)
    # (-log rho, depth, ranks) is the total order: likelier, then shallower, then smaller ranks along the path.
    heap: list[tuple[float, int, tuple[int, ...]]] = []
    if depth_limit and tokens[0]:
        heap.append((-logprobs[0][0], 1, (0,)))
    true_ranks = []
    for row, token in zip(tokens, truth):
        rank = next((r for r, t in enumerate(row) if t == token), None)
        if rank is None:
            break
        true_ranks.append(rank)
    wanted = {tuple(true_ranks[: i + 1]): i for i in range(len(true_ranks))}
    found: dict[int, int] = {}
    total, surrogate = 1.0, [1.0]
    while heap and len(surrogate) < nodes:
        cost, depth, ranks = heapq.heappop(heap)
        total += exp(-cost)
        surrogate.append(total)
        if (i := wanted.get(ranks)) is not None:
            found[i] = len(surrogate)
        row = logprobs[depth - 1]
        if ranks[-1] + 1 < len(row):
            sibling = -cost - row[ranks[-1]] + row[ranks[-1] + 1]
            heapq.heappush(heap, (-sibling, depth, ranks[:-1] + (ranks[-1] + 1,)))
        if depth < depth_limit:
            heapq.heappush(heap, (cost - logprobs[depth][0], depth + 1, ranks + (0,)))
    order = []
    for i in range(len(true_ranks)):
        if i not in found:
            break
        order.append(found[i])
    return order, surrogate
