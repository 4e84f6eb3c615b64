"""Compiled large-neighbourhood search: re-optimise a random tree of nodes exactly, keep it if it fits.

A proposal grows a random set of nodes whose induced subgraph is a tree (a node joins when exactly one of its
neighbours is in), fixes everything else, and minimises cost + memory priced at a random multiple of the current
prices by dynamic programming over the tree; sometimes the root is forced to another strategy, so the tree answers
as in an ejection chain. The proposal is judged by its true effect: it must keep within the limit, and its cost must
fall or pass a Metropolis test. While the current assignment is outside the limit, cost + sum_t price_t max(0,
usage_t - room_t) takes the place of cost, at prices that grow wherever the limit stays broken. Forbidden entries
must come as large finite numbers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .network import F, I


@njit(cache=True, nogil=True)
def uniform(rng: I) -> float:
    """xorshift64*: next number in [0, 1); ``rng[0]`` is the state."""
    v = rng[0]
    v ^= v >> np.uint64(12)
    v ^= v << np.uint64(25)
    v ^= v >> np.uint64(27)
    rng[0] = v
    return float((v * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def search(
    uoff: I, unary: F, eu: I, ev: I, eoff: I, table: F, aoff: I, adj: I,
    coff: I, cstart: I, cend: I, cuoff: I, cuse: F,
    price: F, boost: F, slack: F, x: I, best: I, state: F, rng: I,
    count: int, limit: int, hot: float, cold: float, largest: float, unit: float,
) -> int:  # fmt: skip
    """``count`` proposals on ``x``, in place; returns how many were accepted.

    ``state`` = [cost, overuse, best cost, best overuse]; ``best`` the best assignment; ``boost`` are extra prices
    learned where proposals broke the limit. Trees have up to ``limit`` nodes; the temperature falls geometrically
    from ``hot`` to ``cold``; trees stop growing at domains above ``largest``; ``unit`` is a price per unit of memory
    from which the extra prices of overused points grow.
    """
    n = len(uoff) - 1
    points = len(slack)
    kmax = 0
    for i in range(n):
        kmax = max(kmax, uoff[i + 1] - uoff[i])
    stamp = np.zeros(n, np.int64)
    mark = np.zeros(n, np.int64)  # tree neighbours, valid when stamp matches
    where = np.full(n, -1, np.int64)
    nodes, parent, via = np.empty(limit, np.int64), np.empty(limit, np.int64), np.empty(limit, np.int64)
    frontier = np.empty(4 * limit + 64, np.int64)
    off = np.zeros(limit + 1, np.int64)
    choice = np.empty(limit, np.int64)
    val = np.empty(limit * min(kmax, 64) + kmax)
    diff = np.zeros(points + 1)
    total = np.zeros(points + 1)
    culprit = np.empty(n, np.int64)
    broken = np.zeros(points + 1, np.int64)
    culprits = 0
    accepted = 0
    tick = 0
    cooling = (cold / hot) ** (1.0 / max(count, 1)) if hot > 0 and cold > 0 else 1.0
    heat = hot
    for it in range(count):
        heat *= cooling
        if it % 256 == 0:
            for t in range(points):
                if state[1] == 0:
                    boost[t] *= 0.95
                elif slack[t] < 0:
                    boost[t] = 1.3 * boost[t] + 0.25 * (price[t] + unit)
                total[t + 1] = total[t] + price[t] + boost[t]
            culprits = 0
            if state[1] > 0:  # the nodes that are live where the limit is broken
                for t in range(points):
                    broken[t + 1] = broken[t] + (1 if slack[t] < 0 else 0)
                for i in range(n):
                    for c in range(coff[i], coff[i + 1]):
                        if broken[cend[c]] > broken[cstart[c]]:
                            culprit[culprits] = i
                            culprits += 1
                            break
        tick += 1
        target = int(np.exp(uniform(rng) * np.log(limit + 0.999)))
        root = int(uniform(rng) * n)
        if state[1] > 0 and culprits > 0 and uniform(rng) < 0.5:
            root = culprit[int(uniform(rng) * culprits)]
        # --- grow
        size, front = 0, 0
        frontier[0] = root
        front = 1
        stamp[root] = tick
        mark[root] = 1
        while front > 0 and size < target:
            y = int(uniform(rng) * front)
            i = frontier[y]
            front -= 1
            frontier[y] = frontier[front]
            if size > 0 and mark[i] != 1:
                continue
            k = uoff[i + 1] - uoff[i]
            if off[size] + k > len(val) or (size > 0 and k > largest):
                continue
            nodes[size] = i
            where[i] = size
            parent[size] = -1
            via[size] = -1
            off[size + 1] = off[size] + k
            for h in range(aoff[i], aoff[i + 1]):
                e = adj[h]
                j = ev[e] if eu[e] == i else eu[e]
                if where[j] >= 0:
                    parent[size] = where[j]
                    via[size] = e
                    continue
                if stamp[j] != tick:
                    stamp[j] = tick
                    mark[j] = 0
                mark[j] += 1
                if mark[j] == 1 and front < len(frontier):
                    frontier[front] = j
                    front += 1
            size += 1
        # --- local costs
        z = uniform(rng)
        scale = 0.0 if z < 0.1 else np.exp(2.0 * (uniform(rng) - 0.5) * uniform(rng) * 2.0)
        before = 0.0
        for y in range(size):
            i = nodes[y]
            k = uoff[i + 1] - uoff[i]
            o = off[y]
            for s in range(k):
                val[o + s] = unary[uoff[i] + s]
            for h in range(aoff[i], aoff[i + 1]):
                e = adj[h]
                first = eu[e] == i
                j = ev[e] if first else eu[e]
                if where[j] >= 0:
                    continue
                if first:
                    kj = uoff[j + 1] - uoff[j]
                    at = eoff[e] + x[j]
                    for s in range(k):
                        val[o + s] += table[at + s * kj]
                else:
                    at = eoff[e] + x[j] * k
                    for s in range(k):
                        val[o + s] += table[at + s]
            before += val[o + x[i]]
            if parent[y] >= 0:
                p = nodes[parent[y]]
                e = via[y]
                if eu[e] == i:
                    before += table[eoff[e] + x[i] * (uoff[p + 1] - uoff[p]) + x[p]]
                else:
                    before += table[eoff[e] + x[p] * k + x[i]]
            if scale > 0:
                for c in range(coff[i], coff[i + 1]):
                    rate = scale * (total[cend[c]] - total[cstart[c]])
                    if rate != 0:
                        for s in range(k):
                            val[o + s] += rate * cuse[cuoff[c] + s]
        # --- dynamic programming, leaves first
        forced = -1
        if uniform(rng) < 0.7:
            k = off[1]
            if k > 1:
                forced = int(uniform(rng) * (k - 1))
                if forced >= x[root]:
                    forced += 1
        for y in range(size - 1, 0, -1):
            i = nodes[y]
            p = nodes[parent[y]]
            e = via[y]
            k, kp = uoff[i + 1] - uoff[i], uoff[p + 1] - uoff[p]
            o, op = off[y], off[parent[y]]
            only = forced if (parent[y] == 0 and forced >= 0) else -1
            for q in range(kp):
                if only >= 0 and q != only:
                    continue
                low = np.inf
                if eu[e] == i:
                    at = eoff[e] + q
                    for s in range(k):
                        v = val[o + s] + table[at + s * kp]
                        if v < low:
                            low = v
                else:
                    at = eoff[e] + q * k
                    for s in range(k):
                        v = val[o + s] + table[at + s]
                        if v < low:
                            low = v
                val[op + q] += low
        changed = 0
        for y in range(size):
            i = nodes[y]
            k = uoff[i + 1] - uoff[i]
            o = off[y]
            pick = 0
            if y == 0:
                if forced >= 0:
                    pick = forced
                else:
                    for s in range(1, k):
                        if val[o + s] < val[o + pick]:
                            pick = s
                    if not val[o + pick] < val[o + x[i]]:
                        pick = x[i]
            else:
                p = nodes[parent[y]]
                kp = uoff[p + 1] - uoff[p]
                q = choice[parent[y]]
                e = via[y]
                low = np.inf
                for s in range(k):
                    v = val[o + s] + (
                        table[eoff[e] + s * kp + q] if eu[e] == i else table[eoff[e] + q * k + s]
                    )
                    if v < low or (v == low and s == x[i]):
                        low = v
                        pick = s
            choice[y] = pick
            if pick != x[i]:
                changed += 1
        if changed > 0:
            # --- true cost and memory of the proposal
            after = 0.0
            lo, hi = points, 0
            for y in range(size):
                i = nodes[y]
                k = uoff[i + 1] - uoff[i]
                s = choice[y]
                after += unary[uoff[i] + s]
                for h in range(aoff[i], aoff[i + 1]):
                    e = adj[h]
                    first = eu[e] == i
                    j = ev[e] if first else eu[e]
                    w = where[j]
                    if w >= 0 and w != parent[y]:
                        continue
                    q = choice[w] if w >= 0 else x[j]
                    if first:
                        after += table[eoff[e] + s * (uoff[j + 1] - uoff[j]) + q]
                    else:
                        after += table[eoff[e] + q * k + s]
                if s != x[i]:
                    for c in range(coff[i], coff[i + 1]):
                        d = cuse[cuoff[c] + s] - cuse[cuoff[c] + x[i]]
                        if d != 0:
                            diff[cstart[c]] += d
                            diff[cend[c]] -= d
                            lo = min(lo, cstart[c])
                            hi = max(hi, cend[c])
            delta = after - before
            allow = -heat * np.log(1e-300 + uniform(rng)) if heat > 0 else 0.0
            ok = False
            if state[1] > 0:  # outside the limit: overuse is paid at the prices learned so far
                run, charge = 0.0, 0.0
                for t in range(lo, hi):
                    run += diff[t]
                    left = slack[t]
                    if run > left or left < 0:
                        charge += (price[t] + boost[t]) * (max(0.0, run - left) - max(0.0, -left))
                ok = delta + charge <= allow
            elif delta <= allow:
                ok = True
                run = 0.0
                for t in range(lo, hi):
                    run += diff[t]
                    if run > slack[t]:
                        ok = False
                        if delta < 0:
                            # a part of the price that would have made this exchange unattractive
                            boost[t] += 0.1 * -delta / run
                        break
            if ok:
                run = 0.0
                for t in range(lo, hi):
                    run += diff[t]
                    slack[t] -= run
                for y in range(size):
                    x[nodes[y]] = choice[y]
                state[0] += delta
                if state[1] > 0:
                    over = 0.0
                    for t in range(points):
                        over += max(0.0, -slack[t])
                    state[1] = over
                accepted += 1
                if state[1] < state[3] or (state[1] == state[3] and state[0] < state[2]):
                    state[2], state[3] = state[0], state[1]
                    best[:] = x
            if hi > 0:
                for y in range(size):
                    i = nodes[y]
                    for c in range(coff[i], coff[i + 1]):
                        diff[cstart[c]] = 0.0
                        diff[cend[c]] = 0.0
        for y in range(size):
            where[nodes[y]] = -1
    return accepted
