"""Fits the constants of a software stack to timed steps. A handful of constants, never one per row.

Errors are relative, with a loss that grows linearly for outliers. Constants stay between bounds that make sense for
them, and a weak pull (`PRIOR`) keeps those that the rows do not determine near where they started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from rhino.ir.errors import UsageError
from rhino.planner.model.machine import Machine
from rhino.planner.model.software import Software
from rhino.planner.model.transformer import predict

#: Constants that a refit may move, and how far.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "matmul": (0.4, 1.3),
    "attention": (0.2, 2.0),
    "elementwise": (0.1, 1.0),
    "score_bytes": (4.0, 30.0),
    "host_forward": (1e-5, 5e-3),
    "host_backward": (1e-5, 1e-2),
    "host_collective": (1e-6, 2e-3),
    "collective": (1e-7, 2e-4),
    "link": (0.2, 1.2),
    "nic": (0.1, 1.2),
    "tp_overlap": (0.001, 0.99),
    "dp_overlap": (0.001, 1.0),
    "pp_overlap": (0.001, 0.99),
    "ep_overlap": (0.001, 0.99),
    "step": (1e-4, 2.0),
    "optimizer": (10.0, 200.0),
}
#: Constants to refit on a foreign stack when nothing else is known.
REFIT = ("matmul", "attention", "elementwise", "host_backward", "link", "nic", "step")
#: Values to start from when nothing of a stack is known.
NEUTRAL: Mapping[str, float] = {
    "matmul": 1.0,
    "attention": 1.0,
    "elementwise": 0.6,
    "host_forward": 3e-4,
    "host_backward": 1e-3,
    "host_collective": 2e-5,
    "collective": 1e-5,
    "link": 1.0,
    "nic": 0.8,
    "tp_overlap": 0.3,
    "dp_overlap": 0.5,
    "pp_overlap": 0.3,
    "ep_overlap": 0.3,
    "step": 0.01,
}
#: Pull of a constant to its start: the residual of one row per unit of its logarithm.
PRIOR = 0.05


@dataclass(frozen=True)
class Measured:
    """Timed configurations of one machine.

    Attributes:
        machine: where they ran.
        rows: configurations.
        seconds: per step.
    """

    machine: Machine
    rows: np.ndarray
    seconds: np.ndarray


def fit_software(
    start: Software, runs: Sequence[Measured], names: Sequence[str] = REFIT, *, prior: float = PRIOR
) -> Software:
    """The stack's constants with `names` refitted to `runs`, and `spread` set to the error that remains.

    Raises UsageError when there are no rows, or a name is no constant that can be fitted.
    """
    count = sum(len(run.rows) for run in runs)
    if not count:
        raise UsageError("nothing to calibrate on", remedy="give at least one timed configuration")
    bad = [name for name in names if name not in BOUNDS]
    if bad:
        raise UsageError(f"cannot fit {', '.join(bad)}", remedy=f"can fit: {', '.join(BOUNDS)}")
    low = np.log([BOUNDS[name][0] for name in names])
    high = np.log([BOUNDS[name][1] for name in names])
    x0 = np.clip(np.log([max(getattr(start, name), 1e-9) for name in names]), low + 1e-6, high - 1e-6)

    def residuals(x: np.ndarray) -> np.ndarray:
        stack = start._replace(**dict(zip(names, np.exp(x).tolist(), strict=True)))
        parts = [np.log(predict(run.machine, stack, run.rows)["step"] / run.seconds) for run in runs]
        return np.concatenate([*parts, prior * (x - x0)])

    # Waves make the model piecewise smooth; two rounds with a coarse and a finer difference step.
    x = x0
    for step in (0.03, 0.003):
        x = least_squares(
            residuals, x, bounds=(low, high), loss="soft_l1", f_scale=0.08, diff_step=step, max_nfev=60
        ).x
    errors = residuals(x)[:count]
    spread = float(np.sqrt(np.mean(np.clip(errors, -0.3, 0.3) ** 2) * count / max(1, count - len(names))))
    return start._replace(**dict(zip(names, np.exp(x).tolist(), strict=True)), spread=max(spread, 0.02))


def measured_errors(stack: Software, runs: Sequence[Measured]) -> np.ndarray:
    """Relative errors of predicted step times, run after run."""
    if not runs:
        return np.zeros(0)
    return np.concatenate([predict(run.machine, stack, run.rows)["step"] / run.seconds - 1.0 for run in runs])
