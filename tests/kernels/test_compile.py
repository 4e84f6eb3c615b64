"""Every kind of kernel compiles for GPUs that are not there: no spills, tensor cores where there is a matmul."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rhino.kernels.resources import SHARED_LIMIT

CAPABILITIES = (80, 90, 100)


EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt2.py"


def report_of(script: str, arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What a script of this folder prints, run where Triton compiles."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env["RHINO_CACHE"] = str(tmp_path_factory.mktemp("kernels"))
    env["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(script), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    return report_of("compile_report.py", [str(c) for c in CAPABILITIES], tmp_path_factory)


def test_no_kernel_spills_or_outgrows_shared_memory(report: dict[str, list[dict]]) -> None:
    assert len(report) == 6 * len(CAPABILITIES)
    for name, kernels in report.items():
        assert kernels, f"{name}: nothing was fused"
        for kernel in kernels:
            assert kernel["spill_bytes"] == 0, name
            assert kernel["shared_bytes"] <= SHARED_LIMIT[int(name.rsplit("_", 1)[1])], name


@pytest.mark.parametrize(("capability", "instruction"), [(80, "HMMA"), (90, "HGMMA"), (100, "UTCHMMA")])
def test_narrow_matmuls_use_the_tensor_cores(report, capability: int, instruction: str) -> None:
    for name in ("matmul bf16", "matmul f16 batch"):
        (kernel,) = report[f"{name} sm_{capability}"]
        assert kernel["tensor_core"] == instruction


def test_every_kernel_of_the_two_rank_example_compiles_for_sm_90(tmp_path_factory) -> None:
    kernels = report_of("example_report.py", [str(EXAMPLE)], tmp_path_factory)
    kinds = {name.split("_")[0] for name in kernels}
    assert kinds == {"pointwise", "rows", "matmul"}
    for name, kernel in kernels.items():
        assert kernel["spill_bytes"] == 0, name
        assert kernel["shared_bytes"] <= SHARED_LIMIT[90], name
