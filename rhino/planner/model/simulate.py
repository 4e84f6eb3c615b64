"""Event-level simulation of a pipeline schedule on a directed acyclic graph of stages.

Every stage has a forward (F), an input gradient (B) and a weight gradient (W) pass per micro-batch; W may be part of
B. A stage's F waits for the F of its predecessors and the transfer of their outputs, its B for its own F and for the
B of its successors. A device works on one pass at a time, in the order of its schedule:

* GPipe: all forwards, then all backwards;
* 1F1B: as many forwards as the stage's longest path to the end, then one backward, one forward, and so on;
* interleaved 1F1B: Megatron's order, for chains whose stages go around the devices v times;
* zero bubble: greedy; B before F before W, W where the device would wait, F while a limit on micro-batches in flight
  allows (the longest path for ZB-1p, twice that for ZB-2p; the same on all stages).

Orders that are fixed are longest paths; the greedy one is a list schedule in order of start times. Both compiled:
16 stages and 128 micro-batches take well under a millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from rhino.ir.errors import UsageError
from rhino.planner.model.configuration import Schedule
from rhino.planner.model.schedule import depth_to_end

FORWARD, BACKWARD, WEIGHT = 0, 1, 2


@dataclass(frozen=True)
class Pipeline:
    """Stages in topological order and what they do with a micro-batch.

    Attributes:
        forward, backward, weight: seconds per stage; zero weights: W is part of the backward pass.
        edges: ``(from, to)`` stages.
        transfer: seconds per edge and direction.
        device: device of each stage; None: one device per stage. Stages ``s`` and ``s + p`` of one device make an
            interleaved pipeline.
        micro_batches: per step.
        schedule: order of the passes.
        held: bytes per stage that a micro-batch keeps between its forward and its last backward pass.
    """

    forward: Sequence[float]
    backward: Sequence[float]
    weight: Sequence[float]
    edges: Sequence[tuple[int, int]]
    transfer: Sequence[float]
    micro_batches: int
    device: Sequence[int] | None = None
    schedule: Schedule = Schedule.ONE_F_ONE_B
    held: Sequence[float] | None = None

    @staticmethod
    def chain(
        stages: int,
        micro_batches: int,
        *,
        forward: float = 1.0,
        backward: float = 2.0,
        weight: float = 0.0,
        transfer: float = 0.0,
        chunks: int = 1,
        schedule: Schedule = Schedule.ONE_F_ONE_B,
    ) -> Pipeline:
        """Equal stages in a row: `stages` devices with `chunks` each; times are per device, all its chunks."""
        n = stages * chunks
        return Pipeline(
            forward=[forward / chunks] * n,
            backward=[backward / chunks] * n,
            weight=[weight / chunks] * n,
            edges=[(i, i + 1) for i in range(n - 1)],
            transfer=[transfer] * (n - 1),
            micro_batches=micro_batches,
            device=[i % stages for i in range(n)],
            schedule=schedule,
            held=[1.0 / chunks] * n,
        )


@dataclass(frozen=True)
class Timeline:
    """What a simulation found.

    Attributes:
        seconds: until the last pass ends.
        busy: seconds of work per device.
        peak: most of `Pipeline.held` at once, per device.
        start, end: ``[pass, stage, micro-batch]`` seconds (W is nan where it is part of B).
    """

    seconds: float
    busy: np.ndarray
    peak: np.ndarray
    start: np.ndarray
    end: np.ndarray

    @property
    def bubble(self) -> float:
        """Share of the time that the busiest device waits."""
        return 1.0 - float(self.busy.max()) / self.seconds


def simulate(pipeline: Pipeline) -> Timeline:
    """Run a schedule. Raises UsageError for malformed pipelines and for interleaving that is no round robin."""
    p = _Arrays.of(pipeline)
    m = pipeline.micro_batches
    if pipeline.schedule in (Schedule.ZB_1P, Schedule.ZB_2P):
        limit = np.full_like(p.depth, p.depth.max() * (2 if pipeline.schedule is Schedule.ZB_2P else 1))
        start, end, ok = _greedy(
            p.times, p.device, p.in_ptr, p.in_edge, p.out_ptr, p.out_edge, p.ends, p.transfer, m, limit
        )
    else:
        order, count = _orders(pipeline, p)
        start, end, ok = _fixed(
            p.times, p.device, p.in_ptr, p.in_edge, p.out_ptr, p.out_edge, p.ends, p.transfer, m, order, count
        )
    if not ok:
        raise UsageError(
            f"the {pipeline.schedule.name} order of this pipeline waits for itself",
            remedy="give stages in topological order, each edge from a lower to a higher stage",
        )
    split = p.times[WEIGHT].sum() > 0.0
    busy = np.zeros(p.devices)
    np.add.at(busy, p.device, p.times.sum(0) * m)
    peak = _peaks(start, end, p.device, p.held, p.devices, split)
    return Timeline(float(np.nanmax(end)), busy, peak, start, end)


@dataclass(frozen=True)
class _Arrays:
    """A pipeline as arrays: edges by target (`in_*`) and by source (`out_*`)."""

    times: np.ndarray
    device: np.ndarray
    devices: int
    ends: np.ndarray
    transfer: np.ndarray
    in_ptr: np.ndarray
    in_edge: np.ndarray
    out_ptr: np.ndarray
    out_edge: np.ndarray
    depth: np.ndarray
    held: np.ndarray

    @staticmethod
    def of(p: Pipeline) -> _Arrays:
        n = len(p.forward)
        lengths = {len(p.forward), len(p.backward), len(p.weight)}
        if n == 0 or lengths != {n} or len(p.edges) != len(p.transfer) or p.micro_batches < 1:
            raise UsageError(
                "a pipeline needs stages, three times for each, a transfer for each edge and a micro-batch",
                remedy="check the lengths of its lists",
            )
        if any(not 0 <= u < v < n for u, v in p.edges):
            raise UsageError("an edge of the pipeline goes backwards", remedy="number stages topologically")
        device = np.array(p.device if p.device is not None else range(n), dtype=np.int64)
        ends = np.array(p.edges, dtype=np.int64).reshape(-1, 2)
        successors: list[list[int]] = [[] for _ in range(n)]
        for u, v in p.edges:
            successors[u].append(v)
        in_ptr, in_edge = _rows(ends[:, 1], n)
        out_ptr, out_edge = _rows(ends[:, 0], n)
        return _Arrays(
            times=np.array([p.forward, p.backward, p.weight], dtype=np.float64),
            device=device,
            devices=int(device.max()) + 1,
            ends=ends,
            transfer=np.array(p.transfer, dtype=np.float64),
            in_ptr=in_ptr,
            in_edge=in_edge,
            out_ptr=out_ptr,
            out_edge=out_edge,
            depth=np.array(depth_to_end(successors), dtype=np.int64),
            held=np.array(p.held if p.held is not None else [1.0] * n, dtype=np.float64),
        )


def _rows(keys: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges of each stage: pointers into a list of edge numbers."""
    order = np.argsort(keys, kind="stable").astype(np.int64)
    return np.searchsorted(keys[order], np.arange(n + 1)).astype(np.int64), order


def _orders(p: Pipeline, a: _Arrays) -> tuple[np.ndarray, np.ndarray]:
    """``[device, position, (pass, stage, micro-batch)]`` and how many passes each device has."""
    n, m = len(p.forward), p.micro_batches
    split = a.times[WEIGHT].sum() > 0.0
    stages = [np.flatnonzero(a.device == d) for d in range(a.devices)]
    chunks = max(len(s) for s in stages)
    if chunks > 1 and (
        any(len(s) != chunks for s in stages)
        or any(a.device[i] != i % a.devices for i in range(n))
        or m % a.devices
        or p.schedule is not Schedule.ONE_F_ONE_B
    ):
        raise UsageError(
            "stages of this pipeline share devices, but not in turns, or micro-batches do not divide",
            remedy="give stage s to device s mod p, the same number of stages to each, and 1F1B; "
            "micro-batches must be a multiple of the devices",
        )
    order = np.zeros((a.devices, (3 if split else 2) * chunks * m, 3), dtype=np.int64)
    count = np.zeros(a.devices, dtype=np.int64)
    for d in range(a.devices):
        warm = m
        if p.schedule is Schedule.ONE_F_ONE_B:
            warm = int(a.depth[stages[d][0]]) - 1
            if chunks > 1:
                warm = 2 * (a.devices - d - 1) + (chunks - 1) * a.devices
        count[d] = _order(order[d], stages[d], a.devices, m, warm, split)
    return order, count


@njit(cache=True)
def _order(out: np.ndarray, stages: np.ndarray, devices: int, m: int, warm: int, split: bool) -> int:
    """One device's passes: `warm` forwards, then backward and forward in turn. Returns how many there are."""
    v = len(stages)
    total = m * v
    warm = min(warm, total)
    at = 0
    forward = 0
    backward = 0
    while backward < total:
        # A warm-up of w forwards is followed by one more before the first backward.
        if forward < total and forward <= backward + warm:
            chunk = 0 if v == 1 else (forward % (devices * v)) // devices
            micro = forward if v == 1 else forward // (devices * v) * devices + forward % devices
            out[at, 0] = FORWARD
            out[at, 1] = stages[chunk]
            out[at, 2] = micro
            forward += 1
            at += 1
            continue
        chunk = 0 if v == 1 else v - 1 - (backward % (devices * v)) // devices
        micro = backward if v == 1 else backward // (devices * v) * devices + backward % devices
        for kind in range(BACKWARD, WEIGHT + 1 if split else WEIGHT):
            out[at, 0] = kind
            out[at, 1] = stages[chunk]
            out[at, 2] = micro
            at += 1
        backward += 1
    return at


@njit(cache=True)
def _ready(
    kind: int,
    stage: int,
    micro: int,
    end: np.ndarray,
    in_ptr: np.ndarray,
    in_edge: np.ndarray,
    out_ptr: np.ndarray,
    out_edge: np.ndarray,
    ends: np.ndarray,
    transfer: np.ndarray,
) -> float:
    """When the inputs of a pass are there; nan while that is not known."""
    if kind == WEIGHT:
        return end[BACKWARD, stage, micro]
    time = 0.0
    if kind == FORWARD:
        for i in range(in_ptr[stage], in_ptr[stage + 1]):
            e = in_edge[i]
            # max() keeps no nan: compare so that an unknown end stays unknown.
            other = end[FORWARD, ends[e, 0], micro] + transfer[e]
            if math.isnan(other):
                return other
            time = max(time, other)
        return time
    time = end[FORWARD, stage, micro]
    if math.isnan(time):
        return time
    for i in range(out_ptr[stage], out_ptr[stage + 1]):
        e = out_edge[i]
        other = end[BACKWARD, ends[e, 1], micro] + transfer[e]
        if math.isnan(other):
            return other
        time = max(time, other)
    return time


@njit(cache=True)
def _fixed(
    times: np.ndarray,
    device: np.ndarray,
    in_ptr: np.ndarray,
    in_edge: np.ndarray,
    out_ptr: np.ndarray,
    out_edge: np.ndarray,
    ends: np.ndarray,
    transfer: np.ndarray,
    m: int,
    order: np.ndarray,
    count: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Start and end of every pass when each device keeps to its order; False when they wait for each other."""
    n = times.shape[1]
    start = np.full((3, n, m), np.nan)
    end = np.full((3, n, m), np.nan)
    at = np.zeros(len(count), dtype=np.int64)
    free = np.zeros(len(count))
    left = count.sum()
    while left > 0:
        before = left
        for d in range(len(count)):
            while at[d] < count[d]:
                kind, stage, micro = order[d, at[d]]
                ready = _ready(kind, stage, micro, end, in_ptr, in_edge, out_ptr, out_edge, ends, transfer)
                if math.isnan(ready):
                    break
                start[kind, stage, micro] = max(free[d], ready)
                free[d] = start[kind, stage, micro] + times[kind, stage]
                end[kind, stage, micro] = free[d]
                at[d] += 1
                left -= 1
        if left == before:
            return start, end, False
    return start, end, True


@njit(cache=True)
def _greedy(
    times: np.ndarray,
    device: np.ndarray,
    in_ptr: np.ndarray,
    in_edge: np.ndarray,
    out_ptr: np.ndarray,
    out_edge: np.ndarray,
    ends: np.ndarray,
    transfer: np.ndarray,
    m: int,
    limit: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """List schedule: the pass that can start first is next; B before F before W at the same time."""
    n = times.shape[1]
    start = np.full((3, n, m), np.nan)
    end = np.full((3, n, m), np.nan)
    done = np.zeros((3, n), dtype=np.int64)
    free = np.zeros(device.max() + 1)
    # Start of each stage's next F, B and W, kept until something that they depend on changes.
    next_start = np.full((3, n), np.nan)
    stale = np.ones(n, dtype=np.bool_)
    for _ in range(3 * n * m):
        best = np.inf
        best_kind = -1
        best_stage = -1
        for s in range(n):
            if stale[s]:
                stale[s] = False
                for kind in range(3):
                    next_start[kind, s] = np.nan
                    i = done[kind, s]
                    if i >= m:
                        continue
                    if kind == FORWARD and i - done[WEIGHT, s] >= limit[s]:
                        continue
                    ready = _ready(kind, s, i, end, in_ptr, in_edge, out_ptr, out_edge, ends, transfer)
                    next_start[kind, s] = max(free[device[s]], ready) if not math.isnan(ready) else np.nan
            for kind in (BACKWARD, FORWARD, WEIGHT):
                t = next_start[kind, s]
                if t < best or (t == best and kind == BACKWARD and best_kind != BACKWARD):
                    best = t
                    best_kind = kind
                    best_stage = s
                elif t == best and kind == FORWARD and best_kind == WEIGHT:
                    best_kind = kind
                    best_stage = s
        if best_kind < 0:
            return start, end, False
        s = best_stage
        i = done[best_kind, s]
        start[best_kind, s, i] = best
        end[best_kind, s, i] = best + times[best_kind, s]
        free[device[s]] = end[best_kind, s, i]
        done[best_kind, s] += 1
        for other in range(n):
            if device[other] == device[s]:
                stale[other] = True
        for j in range(in_ptr[s], in_ptr[s + 1]):
            stale[ends[in_edge[j], 0]] = True
        for j in range(out_ptr[s], out_ptr[s + 1]):
            stale[ends[out_edge[j], 1]] = True
    return start, end, True


@njit(cache=True)
def _peaks(
    start: np.ndarray, end: np.ndarray, device: np.ndarray, held: np.ndarray, devices: int, split: bool
) -> np.ndarray:
    """Most bytes that micro-batches in flight keep at once, per device."""
    out = np.zeros(devices)
    n, m = start.shape[1], start.shape[2]
    last = WEIGHT if split else BACKWARD
    for d in range(devices):
        count = 0
        for s in range(n):
            if device[s] == d:
                count += 2 * m
        when = np.empty(count)
        what = np.empty(count)
        at = 0
        for s in range(n):
            if device[s] != d:
                continue
            for i in range(m):
                when[at] = start[FORWARD, s, i]
                what[at] = held[s]
                # Released just before anything that starts when the backward pass ends.
                when[at + 1] = end[last, s, i] - 1e-12 * max(1.0, abs(end[last, s, i]))
                what[at + 1] = -held[s]
                at += 2
        now = 0.0
        for i in np.argsort(when):
            now += what[i]
            out[d] = max(out[d], now)
    return out
