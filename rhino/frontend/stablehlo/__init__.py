"""StableHLO text in and out: `read_stablehlo`, `write_stablehlo`, `run_checks`. Needs neither jax nor torch."""

from rhino.frontend.stablehlo.checks import CheckResult, run_checks
from rhino.frontend.stablehlo.read import read_stablehlo, runnable_functions
from rhino.frontend.stablehlo.writer import write_stablehlo

__all__ = ["CheckResult", "read_stablehlo", "run_checks", "runnable_functions", "write_stablehlo"]
