"""Step times: bounds, directions, the linear law; calibration recovers what made the data; tables are read."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from rhino.ir.errors import UsageError
from rhino.planner.model.attention import attention_times
from rhino.planner.model.calibrate import Measured, fit_software, measured_errors
from rhino.planner.model.calibrate_kernels import fit_attention, fit_gemm, fit_lines
from rhino.planner.model.configuration import PARTS, configurations
from rhino.planner.model.gemm import gemm_times
from rhino.planner.model.machine import machine
from rhino.planner.model.measurements import read_runs
from rhino.planner.model.memory import fits
from rhino.planner.model.software import read_software, software, stacks
from rhino.planner.model.transformer import predict

LLAMA = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "gated": 1.0,
    "vocab": 128256,
    "seq": 8192,
}
A100 = machine("A100")
MEGATRON = software("megatron")


def step(**plan: float) -> float:
    return float(predict(A100, MEGATRON, configurations([LLAMA | plan]))["step"][0])


def test_a_step_is_dearer_than_its_flops_and_parts_add_up() -> None:
    rows = configurations([LLAMA | {"micro_batches": m, "dp": d} for m in (1, 8) for d in (1, 8, 64)])
    p = predict(A100, MEGATRON, rows)
    tokens = 8192 * rows["micro_batches"]
    flops = 6 * 7.5e9 * tokens + 6 * 32 * 4096 * 8192 * tokens
    assert np.all(p["step"] > flops / 312e12)
    np.testing.assert_allclose(sum(p[name] for name in PARTS), p["step"], rtol=1e-9)
    assert np.all((p["spread"] > 0.02) & (p["spread"] < 0.5)) and np.all(p["memory_spread"] > 0)


def test_every_cost_has_its_direction() -> None:
    assert step(micro_batches=2) > step(micro_batches=1)
    assert step(recompute=2.0) > step()
    assert step(dp=8) > step()
    assert step(dp=16) > step(dp=8)
    assert step(dp=16, nic=5e9) > step(dp=16, nic=25e9)
    assert step(tp=8, domain=4) > step(tp=8, domain=8)
    assert step(fused_norm=0.0) > step()
    # Tensor parallelism over 8 devices is faster, but not 8 times.
    assert step() / 8 < step(tp=8) < step()


def test_time_is_linear_in_micro_batches() -> None:
    plan = LLAMA | {"tp": 4, "pp": 8, "dp": 4}
    t = predict(A100, MEGATRON, configurations([plan | {"micro_batches": m} for m in (8, 16, 64)]))["step"]
    assert (t[2] - t[1]) / (t[1] - t[0]) == pytest.approx(6.0)


def test_pipelines_wait_as_their_schedule_says() -> None:
    plan = LLAMA | {"pp": 8, "micro_batches": 8}
    rows = [plan | {"schedule": s, "vp": v} for s, v in ((1, 1), (1, 4), (2, 1), (3, 1))]
    bubble = predict(A100, MEGATRON, configurations(rows))["bubble"]
    assert bubble[0] > bubble[1] > 0 and bubble[0] > bubble[2] > bubble[3] == 0
    assert bubble[1] == pytest.approx(bubble[0] / 4, rel=0.25)


def test_calibration_recovers_the_constants_that_made_the_data() -> None:
    true = MEGATRON._replace(matmul=0.8, elementwise=0.5, step=0.05, link=0.7)
    rows = configurations(
        [
            LLAMA | {"tp": t, "micro_batch": b, "micro_batches": m, "recompute": r, "layers": 8}
            for t in (1, 2, 8)
            for b in (1, 2)
            for m in (1, 4)
            for r in (0.0, 2.0)
        ]
    )
    run = Measured(A100, rows, predict(A100, true, rows)["step"])
    fitted = fit_software(MEGATRON, [run], ["matmul", "elementwise", "step", "link"], prior=1e-3)
    assert np.abs(measured_errors(fitted, [run])).max() < 0.01
    assert fitted.matmul == pytest.approx(0.8, rel=0.05) and fitted.step == pytest.approx(0.05, rel=0.2)
    assert fitted.spread == 0.02


def test_kernel_fits_recover_their_constants() -> None:
    rng = np.random.default_rng(0)
    shapes = np.column_stack([2.0 ** rng.integers(5, 14, (120, 3)), np.ones(120)])
    true = A100.matmul._replace(efficiency=0.8, launch=8e-6)
    assert (
        np.abs(
            gemm_times(fit_gemm(A100.matmul, shapes, gemm_times(true, shapes)), shapes)
            / gemm_times(true, shapes)
            - 1
        ).mean()
        < 0.02
    )
    calls = np.array(
        [[b, s, 32, 8, 128, 1, 0] for b in (1, 4, 16) for s in (512, 2048, 8192, 16384)], dtype=float
    )
    slower = A100.attention._replace(rate=1.5e14, half=900.0)
    found = fit_attention(A100.attention, calls, attention_times(slower, calls))
    assert found.rate == pytest.approx(1.5e14, rel=0.05)
    moved = np.repeat(2.0 ** np.arange(10, 31), 3)
    peers = np.tile([1.0, 3.0, 7.0], 21)
    exact = np.minimum(5e-6 + 1e-6 * peers + moved / 5e10, 2e-5 + 1e-7 * peers + moved / 2e11)
    lines, spread = fit_lines(peers, moved, exact)
    assert spread < 0.02 and max(x.bandwidth for x in lines) == pytest.approx(2e11, rel=0.05)


def test_fits_is_a_probability_that_falls_with_what_a_run_needs() -> None:
    rows = configurations(
        [LLAMA | {"tp": 8, "zero": 1, "micro_batch": b, "recompute": 2.0} for b in (1, 8, 64, 512)]
    )
    chance = fits(A100.memory_bytes, predict(A100, MEGATRON, rows))
    assert chance[0] > 0.99 and chance[-1] < 0.01
    assert list(chance) == sorted(chance, reverse=True)


def test_bad_input_is_named() -> None:
    with pytest.raises(UsageError, match="unknown fields"):
        configurations([LLAMA | {"zeros": 3}])
    with pytest.raises(UsageError, match="hidden must be positive"):
        configurations([LLAMA | {"hidden": 0}])
    with pytest.raises(UsageError, match="nothing to calibrate"):
        fit_software(MEGATRON, [], ["matmul"])
    with pytest.raises(UsageError, match="cannot fit"):
        fit_software(MEGATRON, [Measured(A100, configurations([LLAMA]), np.ones(1))], ["spread"])
    with pytest.raises(UsageError, match="known stacks"):
        software("nothing")
    with pytest.raises(UsageError, match="malformed"):
        read_software("[constants]\n")
    with pytest.raises(UsageError, match="for 5 constants"):
        fit_gemm(A100.matmul, np.ones((3, 4)), np.ones(3))


def test_every_stack_loads_and_names_sources() -> None:
    for name in stacks():
        assert 0 < software(name).spread < 0.5


def test_tables_are_read(tmp_path: Path) -> None:
    row = {
        "set": "vtrain_single", "split": "fit", "status": "ok", "model": "m", "layers": "24", "hidden": "2048", "heads": "16",
        "ffn": "8192", "vocab": "50257", "seq": "1024", "gpu": "A100-80GB", "gpus_per_node": "8", "precision": "fp16", "tp": "4",
        "pp": "2", "dp": "1", "micro_batch": "2", "grad_accum": "4", "recompute": "full", "attention": "unfused", "step_s": "0.5",
        "mem_gib": "40", "mem_kind": "",
    }  # fmt: skip
    file = tmp_path / "steps.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(row))
        writer.writeheader()
        writer.writerows([row, row | {"hidden": ""}])
    (run,) = read_runs(file)
    c = run.configuration
    assert (c["tp"], c["recompute"], c["fused_attention"], c["head"]) == (4, 2, 0, 128)
    assert c["vocab"] == 50688  # padded to a multiple of 128 * tp
    assert run.one_node and run.seconds == 0.5 and run.memory == 40 * 2**30
    assert 80e9 <= run.machine().memory_bytes <= 80 * 2**30
