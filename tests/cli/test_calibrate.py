"""`rhino calibrate`: lines recovered from what they made, a file that the planner reads, a real run of two ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rhino.cli.calibrate import CalibrateOptions, fit_lines, hardware_text
from rhino.ir.errors import UsageError
from rhino.ir.mesh import Mesh
from rhino.planner.cluster import COLLECTIVES, Cluster, Line, hardware, read_hardware
from rhino.planner.communication import Communication

ROOT = Path(__file__).parents[2]


def samples(part: str) -> list[dict[str, object]]:
    """What the planner predicts for a shipped part, as if it had been timed."""
    comm = Communication(Cluster.parse(f"8x{part}"), Mesh.parse("8"))
    return [
        {"kind": kind, "members": n, "bytes": size, "seconds": comm.time(kind, n, 1, float(size))}
        for kind in COLLECTIVES
        for n in ((2,) if kind == "permute" else (2, 8))
        for size in (256, 1 << 12, 1 << 16, 1 << 20, 1 << 24)
    ]


def facts(device: str) -> dict[str, object]:
    return {
        "device": device,
        "flops": {"f64": 1e10, "f32": 2e10, "f16": 3e10, "bf16": 4e10},
        "bandwidth": 1e10,
        "launch": 2e-6,
        "memory_bytes": 4e9,
        "samples": samples("L4"),
        "torch": "2.0",
        "threads": 1,
    }


def test_lines_are_recovered_from_exact_times() -> None:
    line = Line(3e-6, 2e-7, 5e10)
    moved = {"all_reduce": lambda n: 2 * (n - 1) / n, "all_gather": lambda n: n - 1, "permute": lambda n: 1}
    found = fit_lines(
        {
            "kind": kind,
            "members": n,
            "bytes": size,
            "seconds": line.latency
            + line.per_hop * (n - 1) * (kind != "permute")
            + moved.get(kind, lambda n: (n - 1) / n)(n) * size / line.bandwidth,
        }
        for kind in COLLECTIVES
        for n in ((2,) if kind == "permute" else (2, 4, 8))
        for size in (256, 1 << 12, 1 << 16, 1 << 20, 1 << 24)
    )
    for kind in COLLECTIVES:
        assert found[kind].latency == pytest.approx(line.latency), kind
        assert found[kind].bandwidth == pytest.approx(line.bandwidth), kind
        assert found[kind].per_hop == pytest.approx(0.0 if kind == "permute" else line.per_hop), kind


def test_one_size_of_group_puts_the_latency_on_members() -> None:
    (line,) = {
        fit_lines(
            [
                {"kind": k, "members": 2, "bytes": s, "seconds": 1e-4 + s / 1e9}
                for k in COLLECTIVES
                for s in (10, 10**6)
            ]
        )["all_to_all"]
    }
    assert line == Line(0.0, pytest.approx(1e-4), pytest.approx(0.5e9))


def test_the_file_says_where_its_figures_come_from_and_plans(tmp_path: Path) -> None:
    text = hardware_text(facts("CPU"), "MINE", 4, None)
    part = read_hardware(text)
    assert (part.flops["bf16"], part.launch, part.memory_bytes) == (4e10, 2e-6, 4e9)
    assert part.outer.lines == hardware("CPU").outer.lines and "ships with Rhino" in text
    path = tmp_path / "mine.toml"
    path.write_text(text)
    cluster = Cluster.parse(f"4x{path}")
    assert cluster.size == 4 and cluster.hardware.launch == 2e-6
    assert Cluster.parse(str(cluster)) == cluster, "a plan's text names the file"
    assert hardware_text(facts("NVIDIA H200"), "X", 8, None).count("H200") >= 2
    with pytest.raises(UsageError, match="network of 'Zonk 9'"):
        hardware_text(facts("Zonk 9"), "X", 8, None)
    with pytest.raises(UsageError, match="no hardware file"):
        Cluster.parse("4xabsent.toml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (CalibrateOptions("x.txt"), "--output"),
        (CalibrateOptions("/absent/x.toml"), "no such folder"),
        (CalibrateOptions("x.toml", nproc=3), "--nproc is 3"),
        (CalibrateOptions("x.toml", name="a b"), "--name"),
        (CalibrateOptions("x.toml", like="nope"), "no data about"),
    ],
)
def test_options_without_meaning_are_refused(options: CalibrateOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options.check()


def test_two_ranks_measure_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    done = subprocess.run(
        [sys.executable, "-m", "rhino.cli.main", "calibrate", "--nproc", "2", "-o", str(path)],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "all_gather" in done.stdout
    part = Cluster.parse(f"2x{path}").hardware
    assert part.memory_bandwidth > 1e8 and part.flops["f32"] > 1e8 and 0 < part.launch < 1e-3
    assert all(lines[0].bandwidth > 1e6 for lines in part.inner.lines.values())
