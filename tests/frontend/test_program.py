"""Program files: what is accepted, and one clear error for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from rhino.frontend.program import Program, load_program, named_inputs
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.optimizers import AdamW

GOOD = """
import torch
from torch import nn
def loss(model, batch):
    return model(batch).sum()
def program():
    return nn.Linear(2, 2), loss, torch.ones(3, 2)
"""


def write(tmp_path: Path, text: str, name: str = "mine.py") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_tuple_and_program(tmp_path: Path) -> None:
    program = load_program(write(tmp_path, GOOD))
    assert isinstance(program.model, nn.Linear) and program.optimizer is None
    assert program.batch_at(7) is program.batch
    text = GOOD.replace(
        "return nn.Linear(2, 2), loss, torch.ones(3, 2)",
        "return rhino.Program(nn.Linear(2, 2), loss, torch.ones(3, 2), rhino.AdamW(lr=2.0), lambda step: step)",
    )
    program = load_program(str(write(tmp_path, "import rhino\n" + text, "other.py")))
    assert program.optimizer == AdamW(lr=2.0) and program.batch_at(7) == 7


def test_neighbours_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path, "WIDTH = 5", "neighbour_of_program.py")
    text = "from neighbour_of_program import WIDTH\n" + GOOD.replace("nn.Linear(2, 2)", "nn.Linear(2, WIDTH)")
    assert load_program(write(tmp_path, text)).model.out_features == 5


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("x = 1", UsageError, "defines no function program()"),
        ("def program():\n    return 3", UsageError, "returned an object of type int"),
        ("def program():\n    return 3, 4, 5", UsageError, "loss is an object of type int"),
        ("def program():\n    return 3, print, 5", UsageError, "model is an object of type int"),
        (
            "def program():\n\n    return 1 / 0",
            ProgramError,
            "mine.py:3: program() failed: ZeroDivisionError",
        ),
        ("def program():\n    pass", UsageError, "returned None"),
        ("def program():\n    return [1, 2]", UsageError, "returned a list of 2"),
        ("import not_there_at_all", ProgramError, "install not_there_at_all, or put it beside"),
        ("import not_there_at_all", ProgramError, "mine.py:1: the program file failed: ModuleNotFoundError"),
        ("def program(:\n    pass", ProgramError, "mine.py:1: the program file failed: SyntaxError"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        load_program(write(tmp_path, text))
    assert message in str(caught.value)


def test_missing_file() -> None:
    with pytest.raises(UsageError, match="no program file"):
        load_program("not/there.py")


def test_not_python(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a Python file"):
        load_program(write(tmp_path, "", "text.txt"))


def test_optimizer_must_be_rhinos() -> None:
    with pytest.raises(UsageError, match=r"rhino\.SGD"):
        Program(nn.Linear(1, 1), lambda m, b: m(b), torch.ones(1), optimizer=torch.optim.SGD)  # type: ignore[arg-type]


def test_named_inputs() -> None:
    x, y = torch.ones(1), torch.zeros(2)
    assert named_inputs(x) == [("batch", x)]
    assert [n for n, _ in named_inputs([x, {"k": y}])] == ["batch.0", "batch.1.k"]
    assert [n for n, _ in named_inputs({"a": x, "b": (y, None, 3, "text")})] == ["a", "b.0"]
