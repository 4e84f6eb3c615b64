"""Run on every rank by test_uneven_ranks.py: steps of a program whose batch and vocabulary are padded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from uneven_program import batch, loss, make_model, optimizer

import rhino


def main(mesh: str, pin: str, steps: int, out: Path) -> None:
    torch.set_num_threads(1)
    step = rhino.parallelize(
        make_model(), loss=loss, batch=batch(0), optimizer=optimizer(), mesh=mesh, pins=[pin]
    )
    losses = [float(step(batch(i))) for i in range(steps)]
    weights = {name: tensor.tolist() for name, tensor in step.state_dict().items()}
    if step.plan is not None:
        out.write_text(json.dumps({"losses": losses, "weights": weights, "padding": step.plan.padding}))
    step.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
