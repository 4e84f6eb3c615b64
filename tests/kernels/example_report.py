"""Prints, as JSON, what every kernel of an example's two-rank program uses on sm_90. Run without TRITON_INTERPRET."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from rhino.dialects import signature
from rhino.dialects.kernel import RegionOp
from rhino.frontend.capture import capture
from rhino.frontend.program import load_program
from rhino.ir.optimizers import AdamW
from rhino.kernels.launch import Generated, generate
from rhino.kernels.read import read
from rhino.kernels.resources import compile_for
from rhino.passes.fuse import fuse
from rhino.passes.fuse_collectives import fuse_collectives
from rhino.passes.spmd import spmd
from rhino.passes.step import training_step
from rhino.planner import plan
from rhino.planner.cluster import Cluster

program = load_program(sys.argv[1])
step = training_step(capture(program), program.optimizer or AdamW())
module = plan(step, Cluster.parse("2")).module
spmd(module)
fuse_collectives(module)
fuse(module)
kernels: dict[str, Generated] = {}
for op in signature.main_of(module).body.block.ops:
    if isinstance(op, RegionOp):
        made = generate(read(op))
        kernels[made.name] = made
with ThreadPoolExecutor(2) as pool:
    found = dict(zip(kernels, pool.map(compile_for, kernels.values()), strict=True))
json.dump({name: asdict(resources) for name, resources in found.items()}, sys.stdout)
