"""Lower bounds by message passing and memory prices (Lagrangian dual of the local-polytope relaxation).

For any messages M and prices p >= 0

    L(M, p) = sum_i min_s h_i(s) + sum_e min_{s,q} (T_e(s, q) - M_{e->i}(s) - M_{e->j}(q)) - sum_t p_t room_t
    h_i(s)  = c_i(s) + sum_t p_t u_i(s, t) + sum_{e at i} M_{e->i}(s)

is at most the optimum. Messages follow SRMP, which on pairwise models is TRW-S (Kolmogorov, "A new look at reweighted
message passing", 2015); prices take Polyak subgradient steps along the constraint violations of the per-node
minimisers, which are a subgradient of L in p at fixed messages.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .network import F, I


@njit(cache=True, nogil=True)
def sweep(
    uoff: I,
    theta: F,
    eu: I,
    ev: I,
    eoff: I,
    table: F,
    moff: I,
    msg: F,
    aoff: I,
    adj: I,
    arg: I,
    reverse: bool,
) -> float:
    """One pass in node order (or backwards), in place; returns L(M, p) without the room term.

    ``msg[moff[2e]:]`` is M_{e->eu[e]}, ``msg[moff[2e+1]:]`` is M_{e->ev[e]}. A node takes all it can from the edges
    behind it, M_{e->i}(s) = min_q T(s, q) - M_{e->j}(q), and gives equal shares of h_i to those ahead. After
    the pass the minimum of every edge term is 0 for each strategy of its later end, so L is the sum of node terms.
    ``arg`` gets the minimisers of h before sharing.
    """
    n = len(uoff) - 1
    value = 0.0
    hat = np.empty(1)
    for step in range(n):
        i = n - 1 - step if reverse else step
        k = uoff[i + 1] - uoff[i]
        ahead, behind = 0, 0
        o = uoff[i]
        if len(hat) < k:
            hat = np.empty(k)
        for s in range(k):
            hat[s] = theta[o + s]
        for h in range(aoff[i], aoff[i + 1]):
            e = adj[h]
            side = 0 if eu[e] == i else 1
            j = ev[e] if side == 0 else eu[e]
            mi = moff[2 * e + side]
            if (j > i) != reverse:
                ahead += 1
            else:
                behind += 1
                mj = moff[2 * e + 1 - side]
                kj = uoff[j + 1] - uoff[j]
                if side == 0:
                    for s in range(k):
                        row = eoff[e] + s * kj
                        low = np.inf
                        for q in range(kj):
                            z = table[row + q] - msg[mj + q]
                            if z < low:
                                low = z
                        msg[mi + s] = low
                else:
                    for s in range(k):
                        msg[mi + s] = np.inf
                    for q in range(kj):
                        row = eoff[e] + q * k
                        v = msg[mj + q]
                        for s in range(k):
                            z = table[row + s] - v
                            if z < msg[mi + s]:
                                msg[mi + s] = z
            for s in range(k):
                hat[s] += msg[mi + s]
        low, best = np.inf, 0
        for s in range(k):
            if hat[s] < low:
                low, best = hat[s], s
        arg[i] = best
        if ahead == 0:
            value += low
            continue
        share = 1.0 / max(ahead, behind)
        if behind > ahead:
            value += low * (1.0 - share * ahead)
        for h in range(aoff[i], aoff[i + 1]):
            e = adj[h]
            side = 0 if eu[e] == i else 1
            j = ev[e] if side == 0 else eu[e]
            if (j > i) == reverse:
                continue
            mi = moff[2 * e + side]
            for s in range(k):
                msg[mi + s] -= share * hat[s]
    return value


@njit(cache=True, nogil=True)
def fix(
    uoff: I, theta: F, unary: F, eu: I, ev: I, eoff: I, table: F, moff: I, msg: F, aoff: I, adj: I,
    base: float, upper: float,
) -> int:  # fmt: skip
    """Reduced-cost fixing: forbid strategies no assignment of cost <= ``upper`` uses; returns how many.

    Runs a forward pass after a backward one, on copies of the messages. When node i is reached every edge term
    at i has minimum 0 for each of its strategies and L has not fallen below its value ``base`` before the
    pass, so every assignment with x_i = s costs at least base + h_i(s) - min h_i.
    """
    n = len(uoff) - 1
    msg = msg.copy()
    gone = 0
    for i in range(n):
        k = uoff[i + 1] - uoff[i]
        ahead, behind = 0, 0
        o = uoff[i]
        hat = theta[o : o + k].copy()
        for h in range(aoff[i], aoff[i + 1]):
            e = adj[h]
            side = 0 if eu[e] == i else 1
            j = ev[e] if side == 0 else eu[e]
            mi = moff[2 * e + side]
            if j > i:
                ahead += 1
            else:
                behind += 1
                mj = moff[2 * e + 1 - side]
                kj = uoff[j + 1] - uoff[j]
                for s in range(k):
                    low = np.inf
                    for q in range(kj):
                        z = table[eoff[e] + (s * kj + q if side == 0 else q * k + s)] - msg[mj + q]
                        if z < low:
                            low = z
                    msg[mi + s] = low
            for s in range(k):
                hat[s] += msg[mi + s]
        low = np.inf
        for s in range(k):
            low = min(low, hat[s])
        for s in range(k):
            if unary[o + s] < np.inf and base + hat[s] - low > upper:
                unary[o + s] = np.inf
                gone += 1
        if ahead == 0:
            continue
        share = 1.0 / max(ahead, behind)
        for h in range(aoff[i], aoff[i + 1]):
            e = adj[h]
            side = 0 if eu[e] == i else 1
            j = ev[e] if side == 0 else eu[e]
            if j > i:
                mi = moff[2 * e + side]
                for s in range(k):
                    msg[mi + s] -= share * hat[s]
    return gone


@njit(cache=True, nogil=True)
def decode(
    uoff: I, theta: F, eu: I, ev: I, eoff: I, table: F, moff: I, msg: F, aoff: I, adj: I, x: I
) -> None:
    """Sequential rounding: earlier neighbours count by their choice, later ones by their message."""
    n = len(uoff) - 1
    for i in range(n):
        k = uoff[i + 1] - uoff[i]
        low, best = np.inf, 0
        score = theta[uoff[i] : uoff[i + 1]].copy()
        for h in range(aoff[i], aoff[i + 1]):
            e = adj[h]
            side = 0 if eu[e] == i else 1
            j = ev[e] if side == 0 else eu[e]
            mo = moff[2 * e + side]
            kj = uoff[j + 1] - uoff[j]
            for s in range(k):
                if j > i:
                    score[s] += msg[mo + s]
                elif side == 0:
                    score[s] += min(table[eoff[e] + s * kj + x[j]], 1e100)
                else:
                    score[s] += min(table[eoff[e] + x[j] * k + s], 1e100)
        for s in range(k):
            if score[s] < low:
                low, best = score[s], s
        x[i] = best


@njit(cache=True, nogil=True)
def usage(cnode: I, cstart: I, cend: I, cuoff: I, cuse: F, x: I, line: F) -> None:
    """``line[t]`` = usage of assignment ``x`` at time point t (``line`` has one entry more than points)."""
    line[:] = 0.0
    for c in range(len(cnode)):
        u = cuse[cuoff[c] + x[cnode[c]]]
        line[cstart[c]] += u
        line[cend[c]] -= u
    run = 0.0
    for t in range(len(line)):
        run += line[t]
        line[t] = run


@njit(cache=True, nogil=True)
def charge(uoff: I, unary: F, cnode: I, cstart: I, cend: I, cuoff: I, cuse: F, price: F, theta: F) -> None:
    """``theta`` = unary + memory charged at ``price``."""
    total = np.empty(len(price) + 1)
    total[0] = 0.0
    for t in range(len(price)):
        total[t + 1] = total[t] + price[t]
    theta[:] = unary
    for c in range(len(cnode)):
        rate = total[cend[c]] - total[cstart[c]]
        if rate == 0.0:
            continue
        i = cnode[c]
        for s in range(uoff[i + 1] - uoff[i]):
            theta[uoff[i] + s] += rate * cuse[cuoff[c] + s]


@njit(cache=True, nogil=True)
def ascend(
    uoff: I, unary: F, eu: I, ev: I, eoff: I, table: F, moff: I, msg: F, aoff: I, adj: I,
    cnode: I, cstart: I, cend: I, cuoff: I, cuse: F, room: F,
    price: F, active: I, best_price: F, best_msg: F, state: F, upper: float, count: int, warm: int,
) -> None:  # fmt: skip
    """``count`` rounds of two sweeps and one price step, in place; prices rest for the first ``warm`` rounds.

    The Polyak step aims at a level ``delta`` above the best bound. Delta grows when a third of it was gained and
    shrinks, with a restart from the best point, when it was not in 20 rounds (after the level control of
    Goffin and Kiwiel, 1999). Neighbouring time points are nearly the same constraint, so only *active* ones are
    priced: each round activates the one most violated. ``state`` = [best bound, delta, rounds since, rounds
    done, bound at the last change of delta]. The best prices and messages are kept apart.
    """
    n = len(uoff) - 1
    points = len(room)
    theta = np.empty(len(unary))
    arg = np.zeros(n, np.int64)
    line = np.zeros(points + 1)
    for _ in range(count):
        charge(uoff, unary, cnode, cstart, cend, cuoff, cuse, price, theta)
        sweep(uoff, theta, eu, ev, eoff, table, moff, msg, aoff, adj, arg, False)
        value = sweep(uoff, theta, eu, ev, eoff, table, moff, msg, aoff, adj, arg, True)
        for t in range(points):
            value -= price[t] * room[t]
        gain = value - state[0]
        if gain > 0:
            state[0] = value
            best_price[:] = price
            best_msg[:] = msg
        state[3] += 1
        if points == 0:
            state[1] = gain
            continue
        if state[3] < warm:
            continue
        if state[1] <= 0:
            state[1] = 0.1 * abs(state[0])
            state[2] = 0
            state[4] = state[0]
        state[1] = min(state[1], max(1.05 * (upper - state[0]), 0.0) + 1e-9 * abs(state[0]))
        if state[0] >= state[4] + 0.3 * state[1]:
            state[1] *= 1.5
            state[2] = 0
            state[4] = state[0]
        else:
            state[2] += 1
            if state[2] >= 20:
                state[1] *= 0.7
                state[2] = 0
                state[4] = state[0]
                price[:] = best_price
                msg[:] = best_msg
                continue
        usage(cnode, cstart, cend, cuoff, cuse, arg, line)
        top, at = 0.0, -1
        for t in range(points):
            line[t] -= room[t]
            if line[t] > top:
                top, at = line[t], t
        if at >= 0:
            active[at] = 1
        norm = 0.0
        for t in range(points):
            if active[t] and (price[t] > 0 or line[t] > 0):
                norm += line[t] * line[t]
        if norm == 0:
            continue
        step = (state[0] + state[1] - value) / norm
        for t in range(points):
            if active[t]:
                price[t] = max(0.0, price[t] + step * line[t])
