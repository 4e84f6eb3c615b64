"""Every bad input gets one clear message and exit code 1 or 2, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_programs import DYNAMIC, FORWARD, UNSUPPORTED, tiny, write

from rhino.cli.main import main

ROOT = Path(__file__).parents[2]


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and what was written to standard error."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert error.count("error:") == 1, error
    assert isinstance(caught.value.code, int)
    return caught.value.code, error


def test_malformed_text_has_line_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "bad.mlir", FORWARD.replace("hlo.mul %h, %h :", "hlo.mul %h %h :"))
    code, error = fails(capsys, "plan", path, "--nproc", "2")
    assert code == 1 and f"{path}:7:" in error


def test_text_that_does_not_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "bad.mlir", FORWARD.replace("dims [0, 1]", "dims [0]"))
    code, error = fails(capsys, "plan", path, "--nproc", "2")
    assert code == 1 and "hlo.reduce" in error


@pytest.mark.parametrize("text", ["", "func.func @other() { func.return }"])
def test_text_without_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    code, error = fails(capsys, "plan", write(tmp_path, "empty.mlir", text), "--nproc", "2")
    assert code == 1 and ("@main" in error or "empty.mlir:1:1" in error)


def test_unsupported_op_is_named_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "unsupported.py", UNSUPPORTED)
    code, error = fails(capsys, "plan", path, "--nproc", "2")
    assert code == 1 and "ldl_factor" in error and "inner" in error and "remedy" in error


def test_dynamic_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "dynamic.py", DYNAMIC)
    code, error = fails(capsys, "check", path, "--nproc", "2")
    assert code == 1 and "shape" in error and "dynamic.py" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mesh", "dp=2,tp=3", "--nproc", "4"], "mesh dp=2,tp=3 has 6 devices, but there are 4"),
        (["--mesh", "dp=2;tp=3"], "cannot read"),
        (["--mesh", "a=2,b=1,c=2,d=2"], "at most three"),
        (["--mesh", "dp=2,dp=2"], "named twice"),
        (["--nproc", "0"], "--nproc is 0"),
    ],
)
def test_meshes_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    for command in ("plan", "run", "check"):
        code, error = fails(capsys, command, tiny(tmp_path), *arguments)
        assert code in (1, 2) and message in error


def test_a_batch_that_cannot_be_divided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tiny(tmp_path, batch=3)
    code, error = fails(capsys, "plan", program, "--plan", "dp", "--nproc", "2", "--no-pad")
    assert code == 1 and "a batch of 3 cannot be divided over 2 devices" in error
    code, error = fails(capsys, "plan", program, "--plan", "dp", "--nproc", "8")
    assert code == 1 and "over 8 devices, and padding it to 8 would at least double the work" in error


def test_a_plan_for_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "plan.mlir")
    with pytest.raises(SystemExit) as done:
        main(["plan", write(tmp_path, "forward.mlir", FORWARD), "--nproc", "2", "-o", plan])
    assert done.value.code == 0
    capsys.readouterr()
    other = write(tmp_path, "other.mlir", FORWARD.replace("8x4", "8x6"))
    for command in ("check", "run"):
        code, error = fails(capsys, command, other, "--plan", plan)
        assert code == 1 and "another program" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.py"], "missing.py"),
        (["run", "program.txt"], "program.txt"),
        (["plan", "missing.mlir", "--nproc", "2"], "missing.mlir"),
        (["plan"], "program"),
        (["fly"], "fly"),
        (["run", "PROGRAM", "--steps", "0"], "--steps is 0"),
        (["run", "PROGRAM", "--steps", "many"], "--steps"),
        (["run", "PROGRAM", "--kernels", "cuda"], "cuda"),
        (["run", "PROGRAM", "--nproc", "1", "--dtype", "float8"], "float8"),
        (["check", "PROGRAM", "--mode", "exact"], "exact"),
        (["check", "PROGRAM", "--plan", "missing.mlir"], "missing.mlir"),
        (["plan", "PROGRAM", "--plan", "magic", "--nproc", "2"], "magic"),
        (["plan", "PROGRAM", "--nproc", "2", "--memory-limit", "lots"], "lots"),
        (["plan", "PROGRAM", "--nproc", "2", "--cluster", "8xH100"], "--cluster"),
        (["plan", "PROGRAM", "--cluster", "8xZ80"], "Z80"),
    ],
)
def test_command_lines_that_mean_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    program = tiny(tmp_path)
    code, error = fails(capsys, *[program if a == "PROGRAM" else a for a in arguments])
    assert code in (1, 2) and message in error


def test_an_error_in_the_users_file_names_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path, "broken.py", "import torch\n\n\ndef program():\n    return torch.zeros(2) + missing\n"
    )
    code, error = fails(capsys, "run", path, "--nproc", "1")
    assert code == 1 and f"{path}:5" in error and "missing" in error


def test_mlir_has_no_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = fails(capsys, "run", write(tmp_path, "f.mlir", FORWARD), "--reference")
    assert code == 2 and "Python program" in error


def test_an_unforeseen_error_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rhino.cli.plan.plan_program", lambda options: 1 // 0)
    code, error = fails(capsys, "plan", tiny(tmp_path))
    assert code == 1 and "ZeroDivisionError" in error and "RHINO_DEBUG=1" in error


@pytest.mark.parametrize("command", ["plan", "run", "check"])
def test_a_missing_program_is_told_before_torch_is_imported(command: str) -> None:
    code = (
        "import sys\nfrom rhino.cli.main import main\ntry:\n"
        f"    main(['{command}', 'missing.py'])\nexcept SystemExit as end:\n"
        "    print(end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "2 False\n"
    assert done.stderr.startswith("error: no program file 'missing.py'")
