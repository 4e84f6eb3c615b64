"""The planner: decides the layout of every value of a program on a cluster, without the cluster."""

from rhino.planner.effort import Effort
from rhino.planner.plan import Plan, load_plan, plan, read_plan

__all__ = ["Effort", "Plan", "load_plan", "plan", "read_plan"]
