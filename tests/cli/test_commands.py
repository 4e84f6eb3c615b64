"""What the commands write: JSON fields, plans as text, help; and that help needs no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_programs import FORWARD, tiny, write

from rhino.cli.check import relative_error
from rhino.cli.main import main
from rhino.cli.planning import Request, parse_size
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.text import load_module
from rhino.ir.errors import MeshError, UsageError
from rhino.ir.mesh import Mesh

ROOT = Path(__file__).parents[2]


def succeeds(*arguments: str) -> None:
    with pytest.raises(SystemExit) as done:
        main(list(arguments))
    assert done.value.code == 0


def read(path: Path) -> dict[str, object]:
    value: dict[str, object] = json.loads(path.read_text())
    return value


def test_plan_writes_json_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts_at, plan_at = tmp_path / "plan.json", tmp_path / "plan.mlir"
    succeeds("plan", tiny(tmp_path), "--nproc", "4", "--json", str(facts_at), "-o", str(plan_at))
    facts = json.loads(facts_at.read_text())
    assert facts["devices"] == 4
    assert set(facts["cost"]) >= {"step_time_s", "compute_s", "comm_s", "peak_memory_bytes"}
    assert facts["lower_bound_s"] <= facts["cost"]["step_time_s"] and 0 <= facts["gap"] <= 1
    assert facts["search_s"] > 0 and Mesh.parse(facts["mesh"]).size == 4
    shapes = {p["name"]: p["shape"] for p in facts["parameters"]}
    assert shapes["embed.weight"] == [32, 16] and all("layout" in p for p in facts["parameters"])
    assert all(set(c) >= {"kind", "axis", "bytes", "count"} for c in facts["collectives"])
    assert set(facts["templates"]) == {"dp", "zero3", "megatron", "fsdp_tp"}
    assert mesh_of(load_module(str(plan_at))).size == 4
    shown = capsys.readouterr().out
    assert "4 devices" in shown and "embed.weight" in shown and "megatron" in shown


def test_check_proves_plan_files_and_templates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, plan, out = tiny(tmp_path), tmp_path / "plan.mlir", tmp_path / "check.json"
    succeeds("plan", program, "--mesh", "dp=2,tp=2", "--plan", "megatron", "-o", str(plan))
    succeeds("check", program, "--plan", str(plan), "--json", str(out))
    report = read(out)
    assert report["equal"] is True and report["mode"] == "float64" and report["failures"] == []
    assert report["ranks"] == 4 and report["mesh"] == "dp=2,tp=2"
    assert isinstance(report["max_rel_error"], float) and report["max_rel_error"] < 1e-10
    assert report["compared"] == {"distributed": 23, "pytorch": 29}
    succeeds("check", program, "--plan", "zero3", "--nproc", "2", "--mode", "float32", "--json", str(out))
    assert read(out)["mode"] == "float32"
    assert "equal:" in capsys.readouterr().out


def test_check_of_integers_is_bit_exact(tmp_path: Path) -> None:
    out = tmp_path / "check.json"
    path = write(tmp_path, "forward.mlir", FORWARD)
    succeeds("check", path, "--nproc", "4", "--mode", "integer", "--json", str(out))
    assert read(out)["max_rel_error"] == 0.0


def test_check_reports_a_wrong_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distributed program that differs makes the check fail, and name what differs."""
    from rhino.cli import check

    def wrong(placed: object) -> object:
        module = correct(placed)
        for op in module.walk():  # type: ignore[attr-defined]
            if op.name == "hlo.mul":
                op.results[0].replace_all_uses_with(op.operands[0])
                break
        return module

    correct = check.local_program
    monkeypatch.setattr(check, "local_program", wrong)
    out = tmp_path / "check.json"
    with pytest.raises(SystemExit) as done:
        main(["check", write(tmp_path, "forward.mlir", FORWARD), "--nproc", "2", "--json", str(out)])
    assert done.value.code == 1
    report = json.loads(out.read_text())
    assert report["equal"] is False
    assert "loss" in {f["name"] for f in report["failures"] if f["what"] == "distributed"}


def test_one_process_and_mlir_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    path = write(tmp_path, "forward.mlir", FORWARD)
    succeeds("run", path, "--nproc", "1", "--steps", "3", "--json", str(out))
    record = json.loads(out.read_text())
    assert record["ranks"] == 1 and len(record["losses"]) == 3
    assert record["losses"][0] > record["losses"][2] > 0
    assert "step 3/3  loss" in capsys.readouterr().out


def test_reference_names_the_options_it_has_no_use_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tiny(tmp_path)
    succeeds("run", program, "--reference", "--steps", "1", "--nproc", "4", "--plan", "dp")
    said = capsys.readouterr()
    assert "step 1/1  loss" in said.out
    assert "in one process: --nproc, --plan say nothing" in said.err


def test_dtype_converts_weights_and_inputs(tmp_path: Path) -> None:
    out, program = tmp_path / "out.json", tiny(tmp_path)
    losses = {}
    for dtype in ("float32", "float64", "bfloat16"):
        succeeds("run", program, "--nproc", "1", "--steps", "2", "--dtype", dtype, "--json", str(out))
        losses[dtype] = json.loads(out.read_text())["losses"]
    assert losses["float64"] == pytest.approx(losses["float32"], rel=1e-5)
    assert losses["float64"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.03)


@pytest.mark.parametrize("command", ["", "plan", "run", "check"])
def test_help_has_an_example_and_needs_no_torch(command: str) -> None:
    code = (
        "import sys\n"
        "from rhino.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as done:\n    assert done.code == 0\n"
        "assert not {'torch', 'numpy', 'xdsl'} & set(sys.modules), 'help imports too much'\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    arguments = [command, "--help"] if command else ["--help"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "rhino" in done.stdout
    if command:
        assert f"Example: rhino {command} " in done.stdout


def test_import_rhino_is_light() -> None:
    code = "import sys, rhino; rhino.SGD, rhino.Mesh; assert not {'torch', 'xdsl'} & set(sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GB", 80 * 10**9), ("512MiB", 512 * 2**20), ("1.5k", 1500), ("7", 7), ("2 tb", 2 * 10**12)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_requests_resolve() -> None:
    cluster, mesh = Request(mesh="dp=2,tp=4").resolve()
    assert cluster.size == 8 and str(mesh) == "dp=2,tp=4"
    cluster, mesh = Request(cluster="2x8xH100").resolve()
    assert cluster.size == 16 and mesh is None
    assert Request().resolve()[0].size == 4
    with pytest.raises(MeshError):
        Request(nproc=2, mesh="dp=4").resolve()
    with pytest.raises(UsageError):
        Request(plan="nowhere.mlir").resolve()


def test_relative_error() -> None:
    import numpy as np

    one, two = np.array([1.0, 100.0]), np.array([1.5, 100.0])
    assert relative_error(two, one, 100.0) == pytest.approx(0.005)
    assert relative_error(one, one, 0.0) == 0.0
    noise = np.array([1e-20, 0.0])
    assert relative_error(noise, -noise, 1.0) < 1e-15
    nan = np.array([np.nan, 1.0])
    assert relative_error(nan, nan, 1.0) == 0.0
    assert relative_error(one, nan, 1.0) == float("inf")
    assert relative_error(one.astype(np.float32), one, 1.0) == float("inf")


def test_arguments_without_names_are_inputs(tmp_path: Path) -> None:
    text = (
        "func.func @main(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> (tensor<8x4xf32>) {\n"
        "  %z = hlo.add %x, %y : tensor<8x4xf32>\n  func.return %z : tensor<8x4xf32>\n}\n"
    )
    path = write(tmp_path, "add.mlir", text)
    succeeds("check", path, "--nproc", "2")
    succeeds("run", path, "--nproc", "1", "--steps", "1")
    twice = FORWARD.replace('rhino.name = "x"', 'rhino.name = "w"')
    with pytest.raises(SystemExit) as done:
        main(["check", write(tmp_path, "twice.mlir", twice), "--nproc", "2"])
    assert done.value.code == 1
