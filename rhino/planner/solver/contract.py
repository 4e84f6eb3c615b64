"""Compiled graph contraction: remove nodes whose best strategy is a function of their neighbours'.

Three exact rules, applied from a work list until none fits:

* **function**: across edge (i, j) each strategy of i allows exactly one strategy of j, so x_j = f(x_i): j's
  costs, edges and memory move onto i (memory-exact);
* **elimination** of a node without memory and with at most two neighbours a, b (min-plus, Bertele and Brioschi,
  "Nonserial dynamic programming", 1972):  T_ab[s, t] += min_r c[r] + T_aj[s, r] + T_jb[r, t];
* **separation**: a table T[s, t] = f[s] + g[t] is no edge at all.

Parallel edges are added up first. Every removal is pushed on a stack (node, a, b, table of arguments), from
which an assignment of the remaining nodes expands back.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .network import F, I

FULL, DONE, EMPTY = 1, 0, 2
"""Result codes: a pool is full (call again on a fresh copy), nothing left to do, no assignment exists."""


@njit(cache=True, nogil=True)
def _link(h: int, i: int, head: I, nxt: I, prv: I, deg: I) -> None:
    nxt[h] = head[i]
    prv[h] = -1
    if head[i] >= 0:
        prv[head[i]] = h
    head[i] = h
    deg[i] += 1


@njit(cache=True, nogil=True)
def _unlink(h: int, i: int, head: I, nxt: I, prv: I, deg: I) -> None:
    if prv[h] >= 0:
        nxt[prv[h]] = nxt[h]
    else:
        head[i] = nxt[h]
    if nxt[h] >= 0:
        prv[nxt[h]] = prv[h]
    deg[i] -= 1


@njit(cache=True, nogil=True)
def _find(a: int, b: int, head: I, nxt: I, deg: I, eu: I, ev: I) -> int:
    """The edge between a and b, or -1."""
    if deg[b] < deg[a]:
        a, b = b, a
    h = head[a]
    while h >= 0:
        e = h >> 1
        if (ev[e] if eu[e] == a else eu[e]) == b:
            return e
        h = nxt[h]
    return -1


@njit(cache=True, nogil=True)
def _classify(e: int, size: I, uoff: I, unary: F, eu: I, ev: I, eoff: I, pool: F, flag: I) -> None:
    """Bit 1: ev is a function of eu; bit 2: the reverse; bit 4: separable. Dead strategies do not count."""
    i, j = eu[e], ev[e]
    ki, kj = size[i], size[j]
    o = eoff[e]
    f1, f2 = True, True
    si, sj = -1, -1
    for s in range(ki):
        if unary[uoff[i] + s] == np.inf:
            continue
        if si < 0:
            si = s
        count = 0
        for q in range(kj):
            if unary[uoff[j] + q] < np.inf and pool[o + s * kj + q] < np.inf:
                count += 1
                if count > 1:
                    break
        if count > 1:
            f1 = False
            break
    for q in range(kj):
        if unary[uoff[j] + q] == np.inf:
            continue
        if sj < 0:
            sj = q
        count = 0
        for s in range(ki):
            if unary[uoff[i] + s] < np.inf and pool[o + s * kj + q] < np.inf:
                count += 1
                if count > 1:
                    break
        if count > 1:
            f2 = False
            break
    flag[e] = (1 if f1 else 0) + (2 if f2 else 0)
    if f1 or f2 or si < 0 or sj < 0:
        return
    for s in range(ki):
        if unary[uoff[i] + s] == np.inf:
            continue
        shift = pool[o + s * kj + sj] - pool[o + si * kj + sj]
        for q in range(kj):
            if unary[uoff[j] + q] == np.inf:
                continue
            v = pool[o + s * kj + q]
            if v == np.inf or v - pool[o + si * kj + q] != shift:
                return
    flag[e] = 4


@njit(cache=True, nogil=True)
def _value(e: int, a: int, s: int, q: int, size: I, eu: I, ev: I, eoff: I, pool: F) -> float:
    """Table of e at strategy s of its end a and q of the other end."""
    if eu[e] == a:
        return pool[eoff[e] + s * size[ev[e]] + q]
    return pool[eoff[e] + q * size[a] + s]


@njit(cache=True, nogil=True)
def contract(
    size: I, uoff: I, unary: F, eu: I, ev: I, eoff: I, pool: F, used: int,
    chead: I, cnext: I, cuoff: I, cpool: F, cused: int,
    alive: I, ealive: I, steps: I, args: I, growth: int,
) -> tuple[int, int, float]:  # fmt: skip
    """Apply the rules in place. Returns (code, number of steps, constant cost).

    ``steps[x] = (j, a, b, offset)``: x_j = args[offset + x_a * size[b] + x_b], with a or b -1 when absent.
    ``growth``: how many entries an elimination's new table, or a function merge, may add.
    """
    n, m = len(size), len(eu)
    nxt, prv = np.full(2 * m, -1, np.int64), np.full(2 * m, -1, np.int64)
    head, deg = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    flag = np.zeros(m, np.int64)
    ring, queued = np.empty(n + 1, np.int64), np.ones(n, np.bool_)
    for i in range(n):
        ring[i] = i
    first, last = 0, n
    nsteps, nargs, constant = 0, 0, 0.0

    for e in range(m):
        a, b = eu[e], ev[e]
        g = _find(a, b, head, nxt, deg, eu, ev)
        if g < 0:
            _link(2 * e, a, head, nxt, prv, deg)
            _link(2 * e + 1, b, head, nxt, prv, deg)
            continue
        for s in range(size[a]):
            for q in range(size[b]):
                at = eoff[g] + (s * size[b] + q if eu[g] == a else q * size[a] + s)
                pool[at] += pool[eoff[e] + s * size[b] + q]
        ealive[e] = 0
    for e in range(m):
        if ealive[e]:
            _classify(e, size, uoff, unary, eu, ev, eoff, pool, flag)

    while first != last:
        j = ring[first]
        first = (first + 1) % (n + 1)
        queued[j] = False
        if not alive[j]:
            continue
        # separable edges dissolve into unary costs
        h = head[j]
        while h >= 0:
            e = h >> 1
            h = nxt[h]
            if flag[e] != 4:
                continue
            a, b = eu[e], ev[e]
            ra = -1
            rb = -1
            for s in range(size[a]):
                if ra < 0 and unary[uoff[a] + s] < np.inf:
                    ra = s
            for q in range(size[b]):
                if rb < 0 and unary[uoff[b] + q] < np.inf:
                    rb = q
            if ra < 0 or rb < 0:
                return EMPTY, nsteps, constant
            corner = pool[eoff[e] + ra * size[b] + rb]
            for s in range(size[a]):
                if unary[uoff[a] + s] < np.inf:
                    unary[uoff[a] + s] += pool[eoff[e] + s * size[b] + rb] - corner
            for q in range(size[b]):
                if unary[uoff[b] + q] < np.inf:
                    unary[uoff[b] + q] += pool[eoff[e] + ra * size[b] + q]
            _unlink(2 * e, a, head, nxt, prv, deg)
            _unlink(2 * e + 1, b, head, nxt, prv, deg)
            ealive[e] = 0
            other = b if a == j else a
            if not queued[other]:
                queued[other] = True
                ring[last] = other
                last = (last + 1) % (n + 1)
        k = size[j]
        # a node that is a function of a neighbour
        i, via = -1, -1
        h = head[j]
        bestk = 1 << 60
        while h >= 0:
            e = h >> 1
            h = nxt[h]
            w = ev[e] if eu[e] == j else eu[e]
            fits = (flag[e] & 2) if eu[e] == j else (flag[e] & 1)  # j is a function of w
            if not fits or size[w] >= bestk:
                continue
            grow = -k * size[w]
            g = head[j]
            while g >= 0:
                q = ev[g >> 1] if eu[g >> 1] == j else eu[g >> 1]
                if q != w:
                    if _find(w, q, head, nxt, deg, eu, ev) >= 0:
                        grow -= k * size[q]
                    else:
                        grow += (size[w] - k) * size[q]
                g = nxt[g]
            if grow <= growth:
                i, via, bestk = w, e, size[w]
        if i >= 0:
            ki = size[i]
            need = 0
            g = head[j]
            while g >= 0:
                q = ev[g >> 1] if eu[g >> 1] == j else eu[g >> 1]
                need += ki * size[q]
                g = nxt[g]
            cneed = 0
            c = chead[j]
            while c >= 0:
                cneed += ki
                c = cnext[c]
            if used + need > len(pool) or cused + cneed > len(cpool) or nargs + ki > len(args):
                return FULL, nsteps, constant
            steps[nsteps, 0], steps[nsteps, 1], steps[nsteps, 2], steps[nsteps, 3] = j, i, -1, nargs
            nsteps += 1
            fo = nargs
            nargs += ki
            for s in range(ki):
                f = -1
                v = 0.0
                if unary[uoff[i] + s] < np.inf:
                    for q in range(k):
                        v = _value(via, i, s, q, size, eu, ev, eoff, pool) + unary[uoff[j] + q]
                        if v < np.inf:
                            f = q
                            break
                if f < 0:
                    unary[uoff[i] + s] = np.inf
                    args[fo + s] = 0
                else:
                    unary[uoff[i] + s] += v
                    args[fo + s] = f
            _unlink(2 * via, eu[via], head, nxt, prv, deg)
            _unlink(2 * via + 1, ev[via], head, nxt, prv, deg)
            ealive[via] = 0
            while head[j] >= 0:
                h = head[j]
                e = h >> 1
                w = ev[e] if eu[e] == j else eu[e]
                kw = size[w]
                g = _find(i, w, head, nxt, deg, eu, ev)
                if g >= 0:
                    for s in range(ki):
                        f = args[fo + s]
                        for q in range(kw):
                            at = eoff[g] + (s * kw + q if eu[g] == i else q * ki + s)
                            pool[at] += _value(e, j, f, q, size, eu, ev, eoff, pool)
                    _unlink(2 * e, eu[e], head, nxt, prv, deg)
                    _unlink(2 * e + 1, ev[e], head, nxt, prv, deg)
                    ealive[e] = 0
                else:
                    for s in range(ki):
                        f = args[fo + s]
                        for q in range(kw):
                            pool[used + s * kw + q] = _value(e, j, f, q, size, eu, ev, eoff, pool)
                    _unlink(2 * e, eu[e], head, nxt, prv, deg)
                    _unlink(2 * e + 1, ev[e], head, nxt, prv, deg)
                    eu[e], ev[e], eoff[e] = i, w, used
                    used += ki * kw
                    _link(2 * e, i, head, nxt, prv, deg)
                    _link(2 * e + 1, w, head, nxt, prv, deg)
                    g = e
                _classify(g, size, uoff, unary, eu, ev, eoff, pool, flag)
                if not queued[w]:
                    queued[w] = True
                    ring[last] = w
                    last = (last + 1) % (n + 1)
            while chead[j] >= 0:
                c = chead[j]
                chead[j] = cnext[c]
                for s in range(ki):
                    cpool[cused + s] = cpool[cuoff[c] + args[fo + s]]
                cuoff[c] = cused
                cused += ki
                cnext[c] = chead[i]
                chead[i] = c
            alive[j] = 0
            if not queued[i]:
                queued[i] = True
                ring[last] = i
                last = (last + 1) % (n + 1)
            continue
        # elimination of nodes without memory
        if chead[j] >= 0 or deg[j] > 2:
            continue
        a, b, ea, eb = -1, -1, -1, -1
        if deg[j] >= 1:
            ea = head[j] >> 1
            a = ev[ea] if eu[ea] == j else eu[ea]
        if deg[j] == 2:
            eb = nxt[head[j]] >> 1
            b = ev[eb] if eu[eb] == j else eu[eb]
        ka = size[a] if a >= 0 else 1
        kb = size[b] if b >= 0 else 1
        joint = -1
        if b >= 0:
            joint = _find(a, b, head, nxt, deg, eu, ev)
            if joint < 0 and ka * kb > k * (ka + kb) + growth:
                continue
            if used + ka * kb > len(pool):
                return FULL, nsteps, constant
        if nargs + ka * kb > len(args):
            return FULL, nsteps, constant
        steps[nsteps, 0], steps[nsteps, 1], steps[nsteps, 2], steps[nsteps, 3] = j, a, b, nargs
        nsteps += 1
        for s in range(ka):
            for q in range(kb):
                low, arg = np.inf, 0
                for r in range(k):
                    v = unary[uoff[j] + r]
                    if a >= 0:
                        v += _value(ea, j, r, s, size, eu, ev, eoff, pool)
                    if b >= 0:
                        v += _value(eb, j, r, q, size, eu, ev, eoff, pool)
                    if v < low:
                        low, arg = v, r
                args[nargs + s * kb + q] = arg
                if a < 0:
                    constant += low
                    if low == np.inf:
                        return EMPTY, nsteps, constant
                elif b < 0:
                    unary[uoff[a] + s] += low
                elif joint >= 0:
                    at = eoff[joint] + (s * kb + q if eu[joint] == a else q * ka + s)
                    pool[at] += low
                else:
                    pool[used + s * kb + q] = low
        nargs += ka * kb
        alive[j] = 0
        if a >= 0:
            _unlink(2 * ea, eu[ea], head, nxt, prv, deg)
            _unlink(2 * ea + 1, ev[ea], head, nxt, prv, deg)
            ealive[ea] = 0
        if b >= 0:
            _unlink(2 * eb, eu[eb], head, nxt, prv, deg)
            _unlink(2 * eb + 1, ev[eb], head, nxt, prv, deg)
            if joint < 0:
                eu[eb], ev[eb], eoff[eb] = a, b, used
                used += ka * kb
                _link(2 * eb, a, head, nxt, prv, deg)
                _link(2 * eb + 1, b, head, nxt, prv, deg)
                joint = eb
            else:
                ealive[eb] = 0
            _classify(joint, size, uoff, unary, eu, ev, eoff, pool, flag)
        for w in (a, b):
            if w >= 0 and not queued[w]:
                queued[w] = True
                ring[last] = w
                last = (last + 1) % (n + 1)
    return DONE, nsteps, constant


@njit(cache=True, nogil=True)
def replay(steps: I, args: I, size: I, x: I) -> None:
    """Undo the steps on an assignment, in place: the last node removed comes back first."""
    for p in range(len(steps) - 1, -1, -1):
        j, a, b, o = steps[p]
        at = x[a] if a >= 0 else 0
        if b >= 0:
            at = at * size[b] + x[b]
        x[j] = args[o + at]


@njit(cache=True, nogil=True)
def list_components(kept: I, chead: I, cnext: I, cnode: I, corder: I) -> int:
    """Components of the kept nodes in node order; ``cnode`` gets the new index of the owner."""
    count = 0
    for x in range(len(kept)):
        c = chead[kept[x]]
        while c >= 0:
            cnode[count] = x
            corder[count] = c
            count += 1
            c = cnext[c]
    return count
