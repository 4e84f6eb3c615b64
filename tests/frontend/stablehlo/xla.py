"""Compiles StableHLO text with XLA and runs it on one CPU device."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax._src import xla_bridge
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir


def run(text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of `@main`."""
    with jax.enable_x64(True):
        client = xla_bridge.get_backend("cpu")
        with mlir.make_ir_context():
            module = ir.Module.parse(text)
            devices = xla_client.DeviceList(tuple(client.local_devices())[:1])
            program = client.compile_and_load(module, devices, xla_client.CompileOptions())
        placed = [jax.device_put(a) for a in arguments]
        found = program.execute_sharded(placed).disassemble_into_single_device_arrays()
        return [np.asarray(pieces[0]) for pieces in found]


def verifies(text: str) -> None:
    """Parse and verify with jaxlib's own StableHLO; raises what is wrong."""
    with mlir.make_ir_context():
        ir.Module.parse(text).operation.verify()
