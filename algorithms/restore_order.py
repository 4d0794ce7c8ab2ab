"""The order in which stored states are fetched, so that valuable queries are whole early.

A query is back when the last of its partitions is.  With one store and one link the time until then is the bytes of all
that is fetched before, so the order decides, and not how fast it goes.  What is minimised is the sum over queries of
priority times the bytes until the query is whole: the area that is lost while states are fetched.

`by_value` takes the densest query again and again: most priority for the bytes that it still lacks, of which each query that
needs a partition bears its share.  That is BestDensity with bytes as the cost and no capacity (C. Su, Y. Zhou, "Incremental
Recovery in Distributed Stream Processing Systems", Algorithm 3; conditional densities of lines 24-26).  The problem with
shared partitions is NP-hard (it contains scheduling with precedence for weighted completion times), so this is no optimum;
where queries share nothing it is one (W. Smith, "Various optimizers for single-stage production").
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

MOST_WORK = 200_000
"""Pairs of a query and a partition to fetch that are looked at; with more of them no order is better than another here."""


def by_value(
    size: Mapping[str, int], needs: Mapping[str, Collection[str]], priority: Mapping[str, int]
) -> dict[str, float]:
    """Partition -> its rank, greatest first: priority per byte of the query that it is fetched for.

    `size`: bytes of each partition to fetch, at least 1 counts; `needs`: query -> partitions that it is made of, also those
    that are there; `priority`: of each query.  What no query needs comes last: 0.  All are 0 where `MOST_WORK` is exceeded.
    Ranks never rise along the order in which queries are chosen, so two answers may be merged by rank.
    """
    ranks = dict.fromkeys(size, 0.0)
    if len(size) * len(needs) > MOST_WORK:
        return ranks
    lacks = {query: {p for p in size if p in parts} for query, parts in needs.items()}
    sharers: dict[str, list[str]] = {}
    for query, missing in lacks.items():
        for partition in missing:
            sharers.setdefault(partition, []).append(query)
    share = {p: max(1, size[p]) / len(queries) for p, queries in sharers.items()}
    weight = {query: sum(map(share.__getitem__, missing)) for query, missing in lacks.items()}
    densest = [(-priority[q] / weight[q], q) for q, missing in lacks.items() if missing]
    heapq.heapify(densest)
    least = float("inf")
    while densest:
        density, query = heapq.heappop(densest)
        if not lacks[query] or density != -priority[query] / weight[query]:
            continue  # whole by what others fetched, or it lacks less than when this was noted
        least = min(least, -density)
        for partition in lacks[query].copy():
            ranks[partition] = least
            for other in sharers[partition]:
                lacks[other].discard(partition)
                weight[other] -= share[partition]
                if lacks[other]:
                    weight[other] = max(weight[other], 1e-9)
                    heapq.heappush(densest, (-priority[other] / weight[other], other))
    return ranks
