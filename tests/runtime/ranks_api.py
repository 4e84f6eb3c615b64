"""Run on every rank by test_api.py: `rhino.parallelize` under torchrun's environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from api_program import batch, loss, make_model

import rhino


def main(plan: str, steps: int, out: Path) -> None:
    torch.set_num_threads(1)
    step = rhino.parallelize(
        make_model(), loss=loss, batch=batch(0), optimizer=rhino.SGD(lr=0.1, momentum=0.9), plan=plan
    )
    losses = [float(step(batch(i))) for i in range(steps)]
    weights = {name: tensor.tolist() for name, tensor in step.state_dict().items()}
    assert (step.plan is not None) == (torch.distributed.get_rank() == 0)
    if torch.distributed.get_rank() == 0:
        out.write_text(json.dumps({"losses": losses, "weights": weights}))
    step.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
