"""Solver for cost function networks with memory over time. See ``docs/solver.md``."""

from .problem import Infeasible, Problem, Solution, evaluate
from .solve import solve

__all__ = ["Infeasible", "Problem", "Solution", "evaluate", "solve"]
