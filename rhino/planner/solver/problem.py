"""The problem the solver minimises, and the meaning of a solution.

A *cost function network with memory over time*: node ``i`` picks one strategy ``x_i``; the cost is

    cost(x) = sum_i c_i[x_i] + sum_(i,j) T_ij[x_i, x_j]

and at every time point ``t`` the live usage must fit:

    sum_{i : start_i <= t < end_i} u_i[x_i] <= limit .

The same problem, under the name IOPDDL, was the ASPLOS / EuroSys 2025 contest of Moffitt and Fegade,
"The ASPLOS 2025 / EuroSys 2025 Contest on Intra-Operator Parallelism for Distributed Deep Learning".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FORBIDDEN = 1e18
"""Costs at or above this value mean *forbidden* (the contest's convention); so does infinity."""


class Infeasible(Exception):
    """No assignment satisfies the problem; the message names costs or memory as the cause."""


class NothingBelow(Infeasible):
    """No assignment costs less than the cutoff, and none that costs as much was found."""

    def __init__(self, cutoff: float) -> None:
        super().__init__(f"no assignment costs less than {cutoff:g}")
        self.cutoff = cutoff


@dataclass(frozen=True)
class Problem:
    """A cost function network, optionally with a memory limit over a timeline."""

    costs: tuple[np.ndarray, ...]
    edges: tuple[tuple[int, int, np.ndarray], ...]
    usages: tuple[np.ndarray, ...] | None = None
    intervals: tuple[tuple[int, int], ...] | None = None
    limit: float | None = None

    @property
    def has_memory(self) -> bool:
        """Whether the memory constraint is present at all."""
        return self.usages is not None and self.intervals is not None and self.limit is not None

    def check(self) -> None:
        """Raise ``ValueError`` with the offending node or edge when the parts do not fit together."""
        n = len(self.costs)
        for i, c in enumerate(self.costs):
            if c.ndim != 1 or len(c) == 0:
                raise ValueError(f"node {i}: costs must be a non-empty vector, got shape {c.shape}")
        for e, (i, j, table) in enumerate(self.edges):
            if not (0 <= i < n and 0 <= j < n) or i == j:
                raise ValueError(f"edge {e}: end points {i}, {j} are not two distinct nodes of {n}")
            want = (len(self.costs[i]), len(self.costs[j]))
            if table.shape != want:
                raise ValueError(f"edge {e} ({i}, {j}): table has shape {table.shape}, expected {want}")
        if self.limit is not None and (self.usages is None or self.intervals is None):
            raise ValueError("a memory limit needs usages and intervals")
        if self.usages is not None:
            if len(self.usages) != n or self.intervals is None or len(self.intervals) != n:
                raise ValueError("usages and intervals must have one entry per node")
            for i, u in enumerate(self.usages):
                if u.shape != self.costs[i].shape:
                    raise ValueError(f"node {i}: usages have shape {u.shape}, costs {self.costs[i].shape}")


@dataclass(frozen=True)
class Solution:
    """An assignment with its cost and a proven lower bound on the cost of every assignment."""

    assignment: tuple[int, ...]
    cost: float
    lower_bound: float
    peak_usage: float
    optimal: bool
    seconds: float
    iterations: int

    @property
    def gap(self) -> float:
        """``(cost - lower_bound) / |cost|``: 0 when proven optimal."""
        if self.cost <= self.lower_bound:
            return 0.0
        return (self.cost - self.lower_bound) / max(abs(self.cost), 1e-300)


def evaluate(problem: Problem, assignment: Sequence[int]) -> tuple[float, float]:
    """``(cost, peak usage)`` of an assignment straight from the definition; forbidden costs give inf."""
    if len(assignment) != len(problem.costs):
        raise ValueError(f"assignment has {len(assignment)} entries for {len(problem.costs)} nodes")
    total = 0.0
    for c, s in zip(problem.costs, assignment, strict=True):
        v = float(c[s])
        total += v if v < FORBIDDEN else np.inf
    for i, j, table in problem.edges:
        v = float(table[assignment[i], assignment[j]])
        total += v if v < FORBIDDEN else np.inf
    return total, peak_usage(problem, assignment)


def peak_usage(problem: Problem, assignment: Sequence[int]) -> float:
    """The largest live usage over time, by a sweep over interval ends (0 without usages)."""
    if problem.usages is None or problem.intervals is None:
        return 0.0
    changes: dict[int, float] = {}
    for (start, end), u, s in zip(problem.intervals, problem.usages, assignment, strict=True):
        if start < end:
            changes[start] = changes.get(start, 0.0) + float(u[s])
            changes[end] = changes.get(end, 0.0) - float(u[s])
    level = peak = 0.0
    for t in sorted(changes):
        level += changes[t]
        peak = max(peak, level)
    return peak
