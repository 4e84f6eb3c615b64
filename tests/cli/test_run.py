"""`rhino run` for real: processes over gloo, their losses against plain PyTorch, and the death of a rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rhino.runtime.launch import launch

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "examples" / "gpt2.py")
STEPS = 4
RHINO = [sys.executable, "-m", "rhino.cli.main"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    "OMP_NUM_THREADS": "1",
    "GPT2_LAYERS": "1",
    "GPT2_WIDTH": "32",
    "GPT2_CONTEXT": "16",
    # The ranks of a test are started by the test alone.
    **dict.fromkeys(("RHINO_DEBUG",), ""),
}


def rhino(*arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RHINO, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of plain single-process PyTorch."""
    path = tmp_path_factory.mktemp("reference") / "out.json"
    done = rhino("run", PROGRAM, "--reference", "--steps", str(STEPS), "--json", str(path))
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert record["ranks"] == 1 and record["plan"] == "reference"
    losses: list[float] = record["losses"]
    assert len(losses) == STEPS and losses[-1] < losses[0]
    return losses


def check_record(path: Path, reference: list[float], ranks: int, plan: str) -> None:
    record = json.loads(path.read_text())
    assert record["ranks"] == ranks and record["plan"] == plan
    assert record["tokens_per_s"] > 0 and record["seconds_to_first_step"] > 0
    assert record["losses"] == pytest.approx(reference, rel=1e-5)


def test_four_processes_on_a_given_mesh(tmp_path: Path, reference: list[float]) -> None:
    path = tmp_path / "out.json"
    done = rhino("run", PROGRAM, "--mesh", "dp=2,tp=2", "--steps", str(STEPS), "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert f"step {STEPS}/{STEPS}  loss" in done.stdout and "Traceback" not in done.stderr
    check_record(path, reference, 4, "auto")
    assert json.loads(path.read_text())["mesh"] == "dp=2,tp=2"


def test_every_plan_gives_the_same_losses(tmp_path: Path, reference: list[float]) -> None:
    plans = ["auto", "dp", "zero3", "megatron", "megatron@dp=2,tp=2"]
    out = tmp_path / "losses.json"
    script = str(Path(__file__).with_name("ranks_plans.py"))
    launch([sys.executable, script, PROGRAM, str(STEPS), str(out), *plans], 4, ENVIRONMENT)
    losses = json.loads(out.read_text())
    assert list(losses) == plans
    for plan in plans:
        assert losses[plan] == pytest.approx(reference, rel=1e-5), plan


def test_a_plan_file_runs_under_torchrun(tmp_path: Path, reference: list[float]) -> None:
    plan, path = tmp_path / "plan.mlir", tmp_path / "out.json"
    done = rhino("plan", PROGRAM, "--nproc", "2", "--plan", "zero3", "-o", str(plan))
    assert done.returncode == 0, done.stderr
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "rhino.cli.main", "run", PROGRAM, "--plan", str(plan), "--steps", str(STEPS)]
    done = subprocess.run(
        [*command, "--json", str(path)], env=ENVIRONMENT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    check_record(path, reference, 2, str(plan))


def children(pid: int) -> dict[int, int]:
    """Ranks of the processes that a run started, with their process ids."""
    out = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        out.update({int(v[5:]): int(child) for v in variables if v.startswith(b"RANK=")})
    return out


def test_two_processes_train_as_one_does_until_a_rank_is_killed(reference: list[float]) -> None:
    process = subprocess.Popen(
        [*RHINO, "run", PROGRAM, "--nproc", "2", "--steps", "1000000"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in range(STEPS)]
        assert all(lines), process.stderr.read()
        losses = [float(line.split("loss ")[1].split()[0]) for line in lines]
        assert losses == pytest.approx(reference, rel=1e-5)
        ranks = children(process.pid)
        assert sorted(ranks) == [0, 1]
        started = time.monotonic()
        os.kill(ranks[1], signal.SIGKILL)
        _, error = process.communicate(timeout=30)
        assert time.monotonic() - started < 10
    finally:
        process.kill()
    assert process.returncode == 1
    assert "error: rank 1 died: killed by signal 9 (SIGKILL)" in error and "Traceback" not in error
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks.values())


def test_an_exception_on_one_rank_names_it(tmp_path: Path) -> None:
    path = tmp_path / "late.py"
    path.write_text(
        "import os, torch\n"
        "from torch import nn\n"
        "import rhino\n\n\n"
        "def batches(step):\n"
        "    if step == 1 and os.environ['RANK'] == '1':\n"
        "        raise ValueError('no more data')\n"
        "    return torch.ones(4, 8)\n\n\n"
        "def program():\n"
        "    return rhino.Program(nn.Linear(8, 8), lambda m, x: m(x).sum(), torch.ones(4, 8), None, batches)\n"
    )
    done = rhino("run", str(path), "--nproc", "2", "--plan", "dp", "--steps", "1000")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "rank 1: batches(1) failed: ValueError: no more data" in done.stderr and f"{path}:8" in done.stderr
