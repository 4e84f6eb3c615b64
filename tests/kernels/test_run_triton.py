"""`rhino run --kernels triton` with two processes under Triton's interpreter: the losses of the torch kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "examples" / "gpt2.py")


def losses(tmp_path: Path, *arguments: str) -> list[float]:
    path = tmp_path / "out.json"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        "TRITON_INTERPRET": "1",
        "RHINO_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "rhino.cli.main",
            "run",
            PROGRAM,
            "--steps",
            "2",
            "--json",
            str(path),
            *arguments,
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[float] = json.loads(path.read_text())["losses"]
    return found


def test_two_ranks_with_generated_kernels_train_as_pytorch_does(tmp_path: Path) -> None:
    want = losses(tmp_path, "--reference")
    got = losses(tmp_path, "--nproc", "2", "--kernels", "triton")
    assert len(got) == 2
    assert got == pytest.approx(want, rel=1e-5)
    assert list((tmp_path / "cache" / "kernels").glob("matmul_*.py")), "generated kernels were used"
