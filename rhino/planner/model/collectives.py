"""Time of collectives: the faster of two lines inside a link domain, joined with the network between domains.

A group has `g` members in each of `k` domains; S is the size of the whole tensor of the group in bytes. Inside a
domain

    t = min over lines of  latency + per_hop * (g - 1) + bytes / bandwidth

with bytes ``(g - 1) / g * S`` for all-gather and reduce-scatter, twice that for all-reduce, and the share of the local
array that leaves the device for all-to-all. Between domains each device drives its own network card:

    t = latency + per_hop * log2(k) + bytes / nic * (1 + (ramp * log2(k) / S) ** power)

(the last factor: small messages do not fill the pipeline; from NVLSTree curves of 32 to 8192 H100). Phases inside and
between domains overlap, so the slower one counts; latencies add. This is the same data and the same call that
`rhino.planner.communication.Communication` uses: kind, g, k and the bytes of the local operand.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, PERMUTE = range(5)
#: Number of a kind of collective, as named in hardware files and in programs.
KINDS = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 2, "all_to_all": 3, "permute": 4}

#: Collectives cost more than a local slice, if only by this much.
MARGIN = 1.000001


class Network(NamedTuple):
    """Links of a machine.

    Attributes:
        inner, outer: lines ``[kind, line, (latency, per hop, bytes/s)]``; kinds with one line repeat it.
        launch: seconds of a local slice; no collective costs less.
        ramp: bytes; the message at which the network runs at half speed, per doubling of the domains.
        power: exponent of the ramp.
        spread: relative standard error per kind, and of anything that crosses the network (last entry).
    """

    inner: np.ndarray
    outer: np.ndarray
    launch: float
    ramp: float
    power: float
    spread: np.ndarray


@njit(cache=True)
def _joined(  # type: ignore[misc]
    net: Network, kind: int, g: float, k: float, inner: float, outer: float, whole: float, nic: float
) -> float:
    best = math.inf
    for i in range(2 if g > 1.0 else 1):
        la = 0.0
        ta = 0.0
        if g > 1.0:
            la = net.inner[kind, i, 0] + net.inner[kind, i, 1] * (g - 1.0)
            ta = inner / net.inner[kind, i, 2]
        for j in range(2 if k > 1.0 else 1):
            lb = 0.0
            tb = 0.0
            if k > 1.0:
                doublings = math.log2(k)
                lb = net.outer[kind, j, 0] + net.outer[kind, j, 1] * doublings
                rate = nic if nic > 0.0 else net.outer[kind, j, 2]
                tb = outer / rate
                if whole > 0.0:
                    tb *= 1.0 + (net.ramp * doublings / whole) ** net.power
            best = min(best, la + lb + max(ta, tb))
    return best


@njit(cache=True)
def _phase(  # type: ignore[misc]
    net: Network, kind: int, g: float, k: float, whole: float, nic: float
) -> float:
    """Seconds of an all-gather or a reduce-scatter of a tensor of `whole` bytes."""
    time = _joined(net, kind, g, k, (g - 1.0) / g * whole, (k - 1.0) / k * whole / g, whole, nic)
    return max(time, MARGIN * net.launch)


@njit(cache=True)
def collective_time(  # type: ignore[misc]
    net: Network, kind: int, g: float, k: float, size: float, nic: float
) -> float:
    """Seconds of one collective.

    Args:
        net: links.
        kind: one of the numbers in `KINDS`.
        g, k: members of the group in each domain, and domains.
        size: bytes of the local operand (all-gather: the shard; the others: the whole array a device starts with).
        nic: bytes/s of a device's share of the network cards; 0 takes the machine's own.
    """
    n = g * k
    if n <= 1.0:
        return net.launch
    if kind == ALL_GATHER:
        return _phase(net, kind, g, k, size * n, nic)
    if kind == REDUCE_SCATTER:
        return _phase(net, kind, g, k, size, nic)
    if kind == ALL_REDUCE:
        low = _phase(net, REDUCE_SCATTER, g, k, size, nic)
        high = _phase(net, ALL_GATHER, g, k, size, nic)
        own = _joined(net, kind, g, k, 2.0 * (g - 1.0) / g * size, 2.0 * (k - 1.0) / k * size / g, size, nic)
        return min(max(own, low, high), low + high)
    if kind == ALL_TO_ALL:
        time = _joined(net, kind, g, k, (g - 1.0) / n * size, (n - g) / n * size, 0.0, nic)
    elif k > 1.0:
        time = _joined(net, kind, 1.0, k, 0.0, size, 0.0, nic)
    else:
        time = _joined(net, kind, g, 1.0, size, 0.0, 0.0, nic)
    return max(time, MARGIN * net.launch)


@njit(cache=True)
def collective_times(net: Network, calls: np.ndarray) -> np.ndarray:  # type: ignore[misc]
    """`collective_time` of rows ``(kind, g, k, bytes, nic)``."""
    out = np.empty(calls.shape[0])
    for i in range(calls.shape[0]):
        kind, g, k, size, nic = calls[i]
        out[i] = collective_time(net, int(kind), g, k, size, nic)
    return out


@njit(cache=True)
def collective_spread(net: Network, kind: int, k: float) -> float:  # type: ignore[misc]
    """Relative standard error of `collective_time`."""
    if k > 1.0:
        return max(net.spread[kind], net.spread[5])
    return net.spread[kind]
