"""Run on every rank by test_run.py: one program under several plans, one after the other, on the same processes."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

from rhino.cli import run
from rhino.cli.planning import Request
from rhino.cli.source import load
from rhino.runtime.world import join_world


def main(program: str, steps: int, out: Path, plans: list[str]) -> None:
    losses = {}
    with join_world(timedelta(seconds=120)) as world:
        for plan in plans:
            name, _, mesh = plan.partition("@")
            source = load(program)
            request = Request(None, world.size, mesh or None, name)
            text = run._prepare(source, request, world.size) if world.rank == 0 else None
            prepared = json.loads(world.share(text, plan))
            options = run.RunOptions(program, request, steps)
            controller = run._controller(prepared["module"], options, world)
            controller.load(run._initial_values(source, prepared["module"]))
            record = run.Record(world.size, prepared["plan"], prepared["mesh"])
            run._loop(options, record, run._batches(source, controller), controller, False)
            losses[plan] = record.losses
        world.barrier()
    if world.rank == 0:
        out.write_text(json.dumps(losses))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
