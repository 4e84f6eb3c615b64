"""Axioms of kernels and collectives, and hand-worked values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino.ir.errors import UsageError
from rhino.planner.cluster import kinds
from rhino.planner.model.attention import BACKWARD, attention_time
from rhino.planner.model.collectives import KINDS, collective_time
from rhino.planner.model.gemm import Gemm, gemm_time
from rhino.planner.model.machine import machine

GPUS = ("A100", "H100", "H200", "B200", "GB200")
KIND = st.sampled_from(sorted(KINDS.values()))
SIZE = st.floats(1.0, 1e10)
MEMBERS = st.sampled_from((1, 2, 4, 8))
NODES = st.sampled_from((1, 2, 4, 16, 128))


def seconds(gpu: str, kind: str | int, g: int, k: int, size: float) -> float:
    number = KINDS[kind] if isinstance(kind, str) else kind
    return collective_time(machine(gpu).network, number, float(g), float(k), size, 0.0)


@settings(deadline=None)
@given(gpu=st.sampled_from(GPUS), kind=KIND, g=MEMBERS, k=NODES, size=SIZE, factor=st.floats(1.0, 100.0))
def test_more_bytes_never_cost_less(gpu: str, kind: int, g: int, k: int, size: float, factor: float) -> None:
    assert seconds(gpu, kind, g, k, size) <= seconds(gpu, kind, g, k, size * factor) * (1 + 1e-12)


@settings(deadline=None)
@given(gpu=st.sampled_from(GPUS), kind=KIND, g=MEMBERS, k=NODES, size=SIZE)
def test_no_collective_is_free_and_all_are_dearer_than_a_slice(
    gpu: str, kind: int, g: int, k: int, size: float
) -> None:
    if g * k > 1:
        assert seconds(gpu, kind, g, k, size) > machine(gpu).launch > 0
    else:
        assert seconds(gpu, kind, g, k, size) == machine(gpu).launch


@settings(deadline=None)
@given(gpu=st.sampled_from(GPUS), kind=KIND, size=SIZE)
def test_more_ranks_never_cost_less(gpu: str, kind: int, size: float) -> None:
    # The same local operand; an all-gather of the same whole tensor.
    def whole(g: int, k: int) -> float:
        return size / (g * k) if kind == KINDS["all_gather"] else size

    inside = [seconds(gpu, kind, g, 1, whole(g, 1)) for g in (1, 2, 4, 8)]
    across = [seconds(gpu, kind, 8, k, whole(8, k)) for k in (1, 2, 4, 16, 128)]
    for times in (inside, across):
        assert all(a <= b * (1 + 1e-9) for a, b in zip(times, times[1:], strict=False))


@settings(deadline=None)
@given(gpu=st.sampled_from(GPUS), g=MEMBERS, k=NODES, size=SIZE)
def test_all_reduce_lies_between_its_dearer_phase_and_both(gpu: str, g: int, k: int, size: float) -> None:
    if g * k == 1:
        return
    low = seconds(gpu, "reduce_scatter", g, k, size)
    high = seconds(gpu, "all_gather", g, k, size / (g * k))
    both = seconds(gpu, "all_reduce", g, k, size)
    assert max(low, high) <= both <= (low + high) * (1 + 1e-12)


def test_ring_all_reduce_over_the_network_is_two_phases_over_the_card() -> None:
    # 16 A100 nodes, 8 GB: 2 * 15/16 * 1 GB over each card of 24 GB/s (slower than 14 GB at 195 GB/s inside the
    # node), 34.4 us for each doubling of the nodes, and the ramp of the NVLSTree curves.
    size = 8e9
    ramp = 1 + (1.23e7 * 4 / size) ** 0.8
    network = 4 * 34.4e-6 + 2 * 15 / 16 * size / 8 / 24e9 * ramp
    inside = 34.3e-6 + 7 * 0.31e-6
    assert seconds("A100", "all_reduce", 8, 16, size) == pytest.approx(network + inside, rel=0.02)


def test_gemm_counts_whole_waves() -> None:
    c = Gemm(100.0, 1e14, 1e15, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0)
    # 128 x 128 tiles on 100 multiprocessors: a 1280 x 1280 product is one wave of 1e12 FLOP/s each.
    one = gemm_time(c, 1280.0, 1280.0, 4096.0, 1.0)
    assert one == pytest.approx(2 * 128 * 128 * 4096 / 1e12)
    # Eleven rows of tiles need a second wave, whatever the tile: less than twice the time, more than 1.1 of it.
    assert 1.1 < gemm_time(c, 1408.0, 1280.0, 4096.0, 1.0) / one <= 2.0


@settings(deadline=None)
@given(
    gpu=st.sampled_from(GPUS),
    m=st.integers(1, 256),
    n=st.integers(1, 256),
    k=st.integers(1, 256),
    batch=st.integers(1, 8),
)
def test_gemm_is_monotone_and_above_both_roofs(gpu: str, m: int, n: int, k: int, batch: int) -> None:
    c = machine(gpu).matmul
    shape = [64.0 * m, 64.0 * n, 64.0 * k, float(batch)]
    time = gemm_time(c, *shape)
    assert time >= c.launch + 2 * math.prod(shape) / (c.peak * c.efficiency) * (1 - 1e-9)
    assert (
        time
        >= c.launch + 2 * batch * (shape[0] * shape[2] + shape[2] * shape[1] + shape[0] * shape[1]) / c.memory
    )
    for i in range(4):
        larger = list(shape)
        larger[i] *= 2
        assert gemm_time(c, *larger) >= time * (1 - 1e-9)


def test_misaligned_heads_are_slower() -> None:
    c = machine("A100").matmul
    assert gemm_time(c, 2048.0, 2048.0, 108.0, 32.0) > 1.5 * gemm_time(c, 2048.0, 2048.0, 112.0, 32.0)


@settings(deadline=None)
@given(gpu=st.sampled_from(GPUS), b=st.integers(1, 16), s=st.integers(1, 128), a=st.integers(1, 64))
def test_attention_is_above_its_roof_and_backward_is_dearer(gpu: str, b: int, s: int, a: int) -> None:
    c = machine(gpu).attention
    s *= 128
    for causal in (0.0, 1.0):
        forward = attention_time(c, b, s, s, a, a, 128.0, causal, False)
        assert forward >= c.launch + 4 * b * s * s * a * 128 * (1 - causal / 2) / c.rate * (1 - 1e-9)
        assert attention_time(c, b, s, s, a, a, 128.0, causal, True) > forward
    assert attention_time(c, b, s, s, a, a, 128.0, 1.0, False) <= attention_time(
        c, b, s, s, a, a, 128.0, 0.0, False
    )
    assert BACKWARD > 2


def test_every_gpu_has_kernel_models_and_the_cpu_says_that_it_has_none() -> None:
    for name in kinds():
        if name == "CPU":
            with pytest.raises(UsageError, match="no kernel models"):
                machine(name)
            continue
        m = machine(name, linear="f16" if name == "V100" else "bf16")
        assert m.memory_bytes > 1e10 and m.linear.sms > 10
        assert np.all(m.network.inner[:, :, 2] > 0) and np.all(m.network.spread > 0)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(UsageError, match="known kinds"):
        machine("Z9000")
    with pytest.raises(UsageError, match="known types"):
        machine("A100", linear="fp8")
