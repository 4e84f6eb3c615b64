"""Compiled filters that only remove what some optimal solution does not need.

* ``propagate``: arc consistency. A strategy with no finite partner across some edge cannot be used.
* ``dominate``: conditional dead-end elimination (Goldstein's criterion, "Efficient rotamer elimination
  applied to protein side-chains", 1994, extended by a condition on one neighbour and by memory). For an edge
  (a, j) and a strategy t of a, the pair (t, s') is dropped when another strategy s of j, allowed with t, has

      c[s] + T_aj[t, s] + sum_{w != a} max_q (T_wj[q, s] - T_wj[q, s']) <= c[s'] + T_aj[t, s']

  and uses no more memory than s' in any of j's segments: exchanging s' for s never costs more nor breaks the
  limit. Each step is valid for the network at that moment, so the sequence is valid.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .network import F, I


@njit(cache=True, nogil=True)
def propagate(uoff: I, unary: F, eu: I, ev: I, eoff: I, table: F, aoff: I, adj: I) -> int:
    """Arc consistency to the fixpoint, in place; returns a node left without strategies, or -1."""
    n = len(uoff) - 1
    m = len(eu)
    queue = np.arange(m)
    queued = np.ones(m, np.bool_)
    ring = np.empty(m + 1, np.int64)
    ring[:m] = queue
    head, tail = 0, m
    size = m + 1
    for i in range(n):
        ok = False
        for s in range(uoff[i], uoff[i + 1]):
            if unary[s] < np.inf:
                ok = True
                break
        if not ok:
            return i
    while head != tail:
        e = ring[head]
        head = (head + 1) % size
        queued[e] = False
        for side in range(2):
            i = eu[e] if side == 0 else ev[e]
            j = ev[e] if side == 0 else eu[e]
            ki, kj = uoff[i + 1] - uoff[i], uoff[j + 1] - uoff[j]
            changed = False
            alive = False
            for s in range(ki):
                if unary[uoff[i] + s] == np.inf:
                    continue
                ok = False
                for q in range(kj):
                    at = eoff[e] + (s * kj + q if side == 0 else q * ki + s)
                    if table[at] < np.inf and unary[uoff[j] + q] < np.inf:
                        ok = True
                        break
                if ok:
                    alive = True
                else:
                    unary[uoff[i] + s] = np.inf
                    changed = True
            if not alive:
                return i
            if changed:
                for h in range(aoff[i], aoff[i + 1]):
                    g = adj[h]
                    if not queued[g]:
                        queued[g] = True
                        ring[tail] = g
                        tail = (tail + 1) % size
    return -1


@njit(cache=True, nogil=True)
def _differences(j: int, uoff: I, unary: F, eu: I, eoff: I, ev: I, table: F, e: int, out: F) -> None:
    """``out[s, s'] = max_q (T[q, s] - T[q, s'])`` over the living strategies q across edge ``e``."""
    kj = uoff[j + 1] - uoff[j]
    first = eu[e] == j
    w = ev[e] if first else eu[e]
    kw = uoff[w + 1] - uoff[w]
    for s in range(kj):
        for r in range(kj):
            out[s, r] = -np.inf
    for q in range(kw):
        if unary[uoff[w] + q] == np.inf:
            continue
        for r in range(kj):
            b = table[eoff[e] + (r * kw + q if first else q * kj + r)]
            if b == np.inf:
                continue
            for s in range(kj):
                d = table[eoff[e] + (s * kw + q if first else q * kj + s)] - b
                if d > out[s, r]:
                    out[s, r] = d


@njit(cache=True, nogil=True)
def dominate(
    uoff: I, unary: F, eu: I, ev: I, eoff: I, table: F, aoff: I, adj: I,
    coff: I, cuoff: I, cuse: F, work: int,
) -> int:  # fmt: skip
    """One pass of the criterion above over all nodes, in place; returns how many entries it removed.

    ``coff`` gives each node's slice of segments. Nodes whose pass would take more than ``work`` steps are skipped.
    """
    removed = 0
    n = len(uoff) - 1
    for j in range(n):
        kj = uoff[j + 1] - uoff[j]
        if kj < 2:
            continue
        d = aoff[j + 1] - aoff[j]
        cost = 0
        for h in range(aoff[j], aoff[j + 1]):
            e = adj[h]
            w = ev[e] if eu[e] == j else eu[e]
            cost += 2 * kj * kj * (uoff[w + 1] - uoff[w])
        if cost > work:
            continue
        base = uoff[j]
        less = np.ones((kj, kj), np.bool_)  # less[s, r]: s uses no more than r everywhere
        for c in range(coff[j], coff[j + 1]):
            for s in range(kj):
                for r in range(kj):
                    if cuse[cuoff[c] + s] > cuse[cuoff[c] + r]:
                        less[s, r] = False
        diff = np.empty((d, kj, kj))
        total = np.zeros((kj, kj))
        hard = np.zeros((kj, kj), np.int64)  # how many edges make the exchange impossible
        for x in range(d):
            _differences(j, uoff, unary, eu, eoff, ev, table, adj[aoff[j] + x], diff[x])
            for s in range(kj):
                for r in range(kj):
                    v = diff[x, s, r]
                    if v == np.inf:
                        hard[s, r] += 1
                    elif v > -np.inf:
                        total[s, r] += v
        for r in range(kj):  # unconditional
            if unary[base + r] == np.inf:
                continue
            for s in range(kj):
                if s == r or unary[base + s] == np.inf or not less[s, r] or hard[s, r] > 0:
                    continue
                if unary[base + s] + total[s, r] <= unary[base + r]:
                    unary[base + r] = np.inf
                    removed += 1
                    break
        for x in range(d):
            e = adj[aoff[j] + x]
            first = eu[e] == j
            w = ev[e] if first else eu[e]
            kw = uoff[w + 1] - uoff[w]
            changed = False
            for r in range(kj):
                if unary[base + r] == np.inf:
                    continue
                for s in range(kj):
                    if s == r or unary[base + s] == np.inf or not less[s, r]:
                        continue
                    v = diff[x, s, r]
                    rest = hard[s, r] - (1 if v == np.inf else 0)
                    if rest > 0:
                        continue
                    other = total[s, r] - (v if -np.inf < v < np.inf else 0.0)
                    bound = unary[base + r] - unary[base + s] - other
                    for q in range(kw):
                        if unary[uoff[w] + q] == np.inf:
                            continue
                        ar = eoff[e] + (r * kw + q if first else q * kj + r)
                        at = eoff[e] + (s * kw + q if first else q * kj + s)
                        if table[ar] < np.inf and table[at] < np.inf and table[at] - table[ar] <= bound:
                            table[ar] = np.inf
                            removed += 1
                            changed = True
            if changed:
                for s in range(kj):
                    for r in range(kj):
                        v = diff[x, s, r]
                        if v == np.inf:
                            hard[s, r] -= 1
                        elif v > -np.inf:
                            total[s, r] -= v
                _differences(j, uoff, unary, eu, eoff, ev, table, e, diff[x])
                for s in range(kj):
                    for r in range(kj):
                        v = diff[x, s, r]
                        if v == np.inf:
                            hard[s, r] += 1
                        elif v > -np.inf:
                            total[s, r] += v
    return removed


@njit(cache=True, nogil=True)
def shrink(uoff: I, keep: I, koff: I, eu: I, ev: I, eoff: I, table: F, noff: I, out: F) -> None:
    """Copy edge tables onto the kept strategies: node i keeps ``keep[koff[i]:koff[i+1]]``."""
    for e in range(len(eu)):
        i, j = eu[e], ev[e]
        kj = uoff[j + 1] - uoff[j]
        at = noff[e]
        for x in range(koff[i], koff[i + 1]):
            row = eoff[e] + keep[x] * kj
            for y in range(koff[j], koff[j + 1]):
                out[at] = table[row + keep[y]]
                at += 1
