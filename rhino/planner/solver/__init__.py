"""Solver for cost function networks with memory over time. See ``docs/solver.md``."""

from .problem import Infeasible, NothingBelow, Problem, Solution, evaluate
from .solve import solve

__all__ = ["Infeasible", "NothingBelow", "Problem", "Solution", "evaluate", "solve"]
