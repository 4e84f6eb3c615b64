"""What importing a published model costs beside torch.export itself, and what differentiating it does.

    python benchmarks/capture.py MODELS... [--layers N]

The models live on the meta device (`models.py`). torch's own part is the time inside `torch.export.export` and
`run_decompositions`; everything else of `capture` is Rhino's. Nothing is planned; `plan.py` does.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from results import record, table

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

NAMES = ("llama3-8b", "llama3-70b", "llama3-405b", "gpt3-175b")


class Stopwatch:
    """Seconds spent inside the functions that it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def measure(model: str, layers: int | None) -> list[object]:
    import torch
    from models import configuration, program

    from rhino.dialects import signature
    from rhino.frontend.capture import capture
    from rhino.passes.step import training_step

    config = configuration(model, layers, None)
    source = program(config)
    export, lower = Stopwatch(), Stopwatch()
    exported = torch.export.ExportedProgram
    with (
        mock.patch.object(torch.export, "export", export.wrap(torch.export.export)),
        mock.patch.object(exported, "run_decompositions", lower.wrap(exported.run_decompositions)),
    ):
        start = time.perf_counter()
        forward = capture(source)
        whole = time.perf_counter() - start
    ops = len(signature.main_of(forward).body.block.ops)
    assert source.optimizer is not None
    start = time.perf_counter()
    step = training_step(forward, source.optimizer)
    differentiate = time.perf_counter() - start
    own = whole - export.seconds - lower.seconds
    after = len(signature.main_of(step).body.block.ops)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return [model, config.layers, export.seconds, lower.seconds, own, ops, differentiate, after, peak]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", choices=NAMES)
    parser.add_argument("--layers", type=int, help="another depth than the models'")
    options = parser.parse_args()
    header = ["model", "layers", "torch.export s", "run_decompositions s", "Rhino's import s", "ops"]
    header += ["differentiate s", "ops of the step", "peak GB so far"]
    body = table(header, [measure(model, options.layers) for model in options.models])
    depth = [f"--layers {options.layers}"] if options.layers else []
    record("Capturing", " ".join(["python benchmarks/capture.py", *options.models, *depth]), body)


if __name__ == "__main__":
    main()
