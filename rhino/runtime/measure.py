"""Timings of this machine as one rank sees it: matmuls, memory, the smallest op, and collectives between the ranks.

Everything runs through the calls that the runtime itself makes (`Communicator`), so that what a backend lacks and the
runtime composes is timed as composed. gloo and NCCL by one code path.

On CPUs a collective is timed between computations, as in a step: the ranks do not arrive together, who waits must be
woken on a core where another works, and what is sent is no longer in the cache. In a row, one after the other, the same
collectives take a fraction of that, and plans of many small ones would look better than they are.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.ir import types
from rhino.ir.mesh import AxisRef, Mesh
from rhino.runtime.collectives import Communicator
from rhino.runtime.executor import compile_function
from rhino.runtime.torch_ops import Context
from rhino.runtime.world import World

#: Element types whose matmuls are timed, by the name that hardware files use.
DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

#: Bytes of the local operand that collectives are timed at.
SIZES = tuple(4 << (3 * i) for i in range(2, 8))

#: Rows of the square matmul and bytes of the array that a device is timed with, on a CPU and on a GPU.
MATMUL = {"cpu": 512, "cuda": 8192}
ARRAY = {"cpu": 64 << 20, "cuda": 1 << 30}

#: Calls between two looks at the clock take at least this long; the least of so many such batches counts.
BATCH_S = 0.02
BATCHES = 7

#: Pairs of batches, with and without collectives between computations, and how many of these.
PAIRS = 5
BETWEEN = 3

#: Ops of the program that the smallest op is timed by.
SMALL_OPS = 64


@dataclass(frozen=True)
class Sample:
    """Seconds of one collective in a group of `members`, each with a local operand of `bytes`."""

    kind: str
    members: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Measured:
    """What one rank found.

    Attributes:
        device: its name.
        flops: FLOP/s of a large matmul per element type, every rank at work.
        bandwidth: bytes/s of an addition of large arrays.
        launch: seconds of the smallest op, run in a row by the runtime's executor.
        memory_bytes: of this rank: the GPU's, or its share of the host's.
        samples: of every collective, at every size, in groups of two and of all.
    """

    device: str
    flops: dict[str, float]
    bandwidth: float
    launch: float
    memory_bytes: float
    samples: tuple[Sample, ...]

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def measure(world: World, memory_bytes: float) -> Measured:
    """Time this rank's device and the collectives; all ranks call it together.

    `memory_bytes` is what a rank may use where the device is the host itself.
    """
    device = world.device
    name = "CPU"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, memory_bytes = properties.name, float(properties.total_memory)
    kind = "cuda" if device.type == "cuda" else "cpu"
    world.barrier()
    n = MATMUL[kind]
    flops = {}
    for element, dtype in DTYPES.items():
        a = torch.ones(n, n, dtype=dtype, device=device)
        flops[element] = 2.0 * n**3 / seconds_of(partial(torch.matmul, a, a), device)
    x = torch.ones(ARRAY[kind] // 4, dtype=torch.float32, device=device)
    out = torch.empty_like(x)
    bandwidth = 3.0 * ARRAY[kind] / seconds_of(lambda: torch.add(x, x, out=out), device)
    launch = seconds_of(_small_ops(device), device) / SMALL_OPS
    return Measured(name, flops, bandwidth, launch, memory_bytes, tuple(collective_samples(world)))


def _small_ops(device: torch.device) -> Callable[[], object]:
    """A program of `SMALL_OPS` additions of eight numbers, as the executor runs it."""
    type = types.tensor((8,), types.element("f32"))
    func = FuncOp("main", ([type], []))
    b = Builder(InsertPoint.at_end(func.body.block))
    x: SSAValue = func.args[0]
    for _ in range(SMALL_OPS):
        x = b.add(x, func.args[0])
    b.insert(ReturnOp(x))
    executable = compile_function(func, Context(device))
    given = torch.zeros(8, device=device)
    return lambda: executable([given])


def seconds_of(call: Callable[[], object], device: torch.device, calls: int | None = None) -> float:
    """Seconds of one call: the least mean of several batches. `calls` fixes the batch, as ranks must agree on it."""
    for _ in range(2):
        call()
    if calls is None:
        calls = max(1, int(BATCH_S / max(_batch(call, device, 1), 1e-7)))
    return min(_batch(call, device, calls) for _ in range(BATCHES)) / calls


def _batch(call: Callable[[], object], device: torch.device, calls: int) -> float:
    _wait(device)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def collective_samples(world: World) -> list[Sample]:
    """Every kind of collective, in groups of two and of all ranks (which are a multiple of two)."""
    if world.size == 1:
        return []
    mesh = Mesh((("x", world.size // 2), ("y", 2))) if world.size > 2 else Mesh((("y", 2),))
    groups: list[tuple[AxisRef, ...]] = [(mesh.axis("y"),)]
    if world.size > 2:
        groups.append((mesh.axis("x"), mesh.axis("y")))
    communicator = Communicator(mesh, world.rank, world.device)
    communicator.open(groups)
    out = []
    for axes in groups:
        for size in SIZES:
            out += _samples(world, communicator, axes, size)
    return out


def _samples(world: World, communicator: Communicator, axes: Sequence[AxisRef], size: int) -> list[Sample]:
    group = tuple(axes)
    n = 1
    for axis in group:
        n *= axis.size
    x = torch.ones(max(n, size // 4), dtype=torch.float32, device=world.device)
    count = x.numel()
    ring = [(d, d ^ 1) for d in range(world.size)]
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: communicator.all_reduce(x, group, "sum"),
        "all_gather": lambda: communicator.all_gather(x, group, 0, n * count),
        "reduce_scatter": lambda: communicator.reduce_scatter(x, group, "sum", 0, count),
        "all_to_all": lambda: communicator.all_to_all(x, group, 0, count, 0, count),
    }
    if n == 2:
        calls["permute"] = lambda: communicator.permute(x, ring)
    repeats = max(3, min(50, (4 << 20) // size))
    out = []
    for kind, call in calls.items():
        out.append(Sample(kind, n, 4 * count, _in_a_step(world, call, repeats)))
    return out


def _in_a_step(world: World, call: Callable[[], object], repeats: int) -> float:
    """Seconds that a collective adds to the computation that it stands behind, but no less than it takes in a row; on a
    GPU, where nobody must be woken, that alone. The median of pairs of batches, with and without, one after the other.
    """
    world.barrier()
    alone = seconds_of(call, world.device, repeats)
    if world.device.type == "cuda":
        return alone
    a = torch.ones(MATMUL["cpu"], MATMUL["cpu"], device=world.device)
    work = partial(torch.matmul, a, a)

    def both() -> None:
        work()
        call()

    added = []
    for _ in range(PAIRS):  # every pair ends, so the next begins, on all ranks together
        without = _batch(work, world.device, BETWEEN)
        added.append(_batch(both, world.device, BETWEEN) - without)
    return max(alone, statistics.median(added) / BETWEEN)
