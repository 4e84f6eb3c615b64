"""Run on every rank by test_random_programs.py: local programs in torch against results that are given."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch

from rhino.dialects.text import parse_module
from rhino.ir.shards import shard
from rhino.runtime.controller import whole_value
from rhino.runtime.program import compile_module
from rhino.runtime.tensors import to_numpy, to_torch
from rhino.runtime.world import join_world


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with join_world(timedelta(seconds=60)) as world:
        for path in sorted(folder.glob("*.mlir")):
            program = compile_module(parse_module(path.read_text(), path.name, verify=False), world)
            data = np.load(path.with_suffix(".npz"))
            arguments = [
                to_torch(shard(data[f"a{i}"], port.layout, program.mesh, world.rank))
                for i, port in enumerate(program.arguments)
            ]
            results = program.executable(arguments)
            for i, (port, value) in enumerate(zip(program.results, results, strict=True)):
                whole = to_numpy(whole_value(value, port, program.communicator))
                np.testing.assert_array_equal(whole, data[f"r{i}"], err_msg=f"{path.name} rank {world.rank}")
        world.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
