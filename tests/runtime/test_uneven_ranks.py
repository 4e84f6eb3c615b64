"""Programs whose extents the ranks do not divide: padding is put on and taken off shard by shard, and nobody sees it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from uneven_program import VOCABULARY, batch, loss, make_model, optimizer

import rhino
from rhino.cli.check import check_source
from rhino.cli.planning import Request
from rhino.cli.source import Source
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import Mesh
from rhino.runtime.launch import launch
from rhino.runtime.reference import Reference
from rhino.runtime.tensors import cut, piece_of

STEPS = 3


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.float8_e4m3fn]
)
def test_a_piece_is_that_of_the_padded_tensor(dtype: torch.dtype) -> None:
    mesh = Mesh.parse("x=2,y=2")
    x, y = mesh.axis("x"), mesh.axis("y")
    layouts = [
        Layout.make([[Digit(x, 8), Digit(y, 4)], []]),
        Layout.make([[Digit(y, 4)], [Digit(x, 6)]]),  # digits inside a dimension: pieces with gaps
        Layout.make([[], [Digit(x, 6)]]),
        Layout.replicated(2),
    ]
    true = (torch.arange(5 * 4).reshape(5, 4) % 7 + 1).to(dtype)
    whole = torch.zeros(8, 6, dtype=dtype)
    whole[:5, :4] = true
    for layout in layouts:
        for device in mesh.devices():
            got = piece_of(true, (8, 6), layout, mesh, device)
            want = cut(whole, layout, mesh, device)
            assert torch.equal(got.float(), want.float()) and got.is_contiguous()
            assert got.untyped_storage().data_ptr() != true.untyped_storage().data_ptr()


def test_check_is_satisfied_with_dropout_on() -> None:
    """Against one device and against PyTorch, in float64."""
    program = rhino.Program(make_model(dropout=0.3), loss, batch(0), rhino.AdamW(lr=1e-2))
    report = check_source(Source("uneven", program), Request(mesh="dp=4", plan="dp"))
    assert report.equal, report.failures
    assert report.collectives > 0 and set(report.compared) == {"distributed", "pytorch"}


def test_ranks_train_alike(tmp_path: Path) -> None:
    """Four processes hold 65 of 260 rows of the vocabulary each, of which users know 257."""
    out = tmp_path / "out.json"
    script = str(Path(__file__).with_name("ranks_uneven.py"))
    launch([sys.executable, script, "x=2,y=2", 'wte.weight=[{"x", "y"}, {}]', str(STEPS), str(out)], 4)
    got = json.loads(out.read_text())
    assert f"{VOCABULARY}:260" in got["padding"]
    reference = Reference(make_model(), loss, optimizer())
    assert got["losses"] == pytest.approx([float(reference.step(batch(i))) for i in range(STEPS)], rel=1e-5)
    for name, want in reference.model.state_dict().items():
        torch.testing.assert_close(torch.tensor(got["weights"][name]), want, rtol=1e-3, atol=1e-5)
