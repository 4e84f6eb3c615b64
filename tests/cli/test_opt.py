"""rhino-opt: pipelines, errors, splitting, diagnostics, equivalence; quick to start and free of torch."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from xdsl.passes import ModulePass

import rhino.passes
from rhino.cli.equivalence import difference
from rhino.cli.opt import main, split_chunks
from rhino.cli.pipeline import build_pipeline, describe, parse_pipeline
from rhino.dialects.hlo.elementwise import AddOp, MulOp
from rhino.ir.errors import UsageError

ADD = """func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = hlo.add %x, %y : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "add.mlir"
    path.write_text(ADD)
    return str(path)


@dataclass(frozen=True)
class Options(ModulePass):
    name = "options"
    mesh: str | None = None
    lr: float = 1.0
    count: int = 0
    deep: bool = False
    axes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    keep_it: bool | None = None

    def apply(self, ctx, op):
        pass


@dataclass(frozen=True)
class Required(ModulePass):
    name = "required"
    path: str

    def apply(self, ctx, op):
        pass


@dataclass(frozen=True)
class Wrong(ModulePass):
    """Turns sums into products."""

    name = "wrong"

    def apply(self, ctx, op):
        for add in [o for o in op.walk() if isinstance(o, AddOp)]:
            mul = MulOp.create(operands=add.operands, result_types=add.result_types)
            add.parent.insert_op_before(mul, add)
            add.result.replace_all_uses_with(mul.result)
            add.detach()


@dataclass(frozen=True)
class Broken(ModulePass):
    """Leaves a use before its definition."""

    name = "broken"

    def apply(self, ctx, op):
        add = next(o for o in op.walk() if isinstance(o, AddOp))
        add.operands = [add.result, add.operands[1]]


TABLE = {p.name: (lambda p=p: p) for p in (Options, Required, Wrong, Broken)}


def one(text: str) -> Options:
    (built,) = build_pipeline(text, TABLE)
    return built


def test_option_spellings():
    assert one("options") == Options()
    assert one('options{mesh="dp=2,tp=4"}').mesh == "dp=2,tp=4"
    assert one("options{mesh=dp=2,tp=4}").mesh == "dp=2,tp=4"
    assert one("options{mesh=dp=2,tp=4,lr=1e-3}") == Options(mesh="dp=2,tp=4", lr=1e-3)
    assert one("options{ lr=2.5 mesh=2x4  count=-3 }") == Options(mesh="2x4", lr=2.5, count=-3)
    assert one("options{deep}").deep and not one("options{deep=false}").deep
    assert one("options{axes=dp,tp sizes=2,4}") == Options(axes=("dp", "tp"), sizes=(2, 4))
    assert one("options{sizes=[2,4]}").sizes == (2, 4)
    assert one("options{keep-it=true}").keep_it is True
    assert one("options{mesh=none}").mesh is None


def test_pipelines_split_at_commas_outside_of_options():
    names = [p.name for p in parse_pipeline(" cse , options{mesh=dp=2,tp=2}, fold-constants{limit=3} ")]
    assert names == ["cse", "options", "fold-constants"]
    assert parse_pipeline("") == []


@pytest.mark.parametrize(
    "text, why",
    [
        ("optoins", "no pass 'optoins'"),
        ("options{speed=1}", "no option 'speed'"),
        ("options{lr=fast}", "option 'lr' is 'fast' where float is expected"),
        ("options{count=1.5}", "where int is expected"),
        ("options{lr}", "is nothing where float"),
        ("options{deep=maybe}", "where bool is expected"),
        ("options{lr=1 lr=2}", "given twice"),
        ("required", "needs the option 'path'"),
        ("options{lr=1", "not closed"),
        ("options options", "expected a comma"),
        ("options,", "expected a pass after the comma"),
        ("{}", "expected the name of a pass"),
    ],
)
def test_bad_pipelines_are_usage_errors(text, why):
    with pytest.raises(UsageError) as caught:
        build_pipeline(text, TABLE)
    assert why in str(caught.value)


def test_close_names_are_suggested():
    with pytest.raises(UsageError, match="did you mean options"):
        build_pipeline("option", TABLE)


def test_every_pass_is_listed_with_its_options():
    text = describe(rhino.passes.PASSES)
    for name in rhino.passes.PASSES:
        assert f"{name}: " in text
    assert "    limit: int = 1024" in text


def test_output_goes_to_a_file(program, tmp_path):
    out = tmp_path / "out.mlir"
    assert main([program, "-p", "cse", "-o", str(out)]) == 0
    assert "hlo.add %x, %y" in out.read_text()


@pytest.mark.parametrize(
    "text, place",
    [
        ("func.func @main() {", ":1:"),
        ("func.func @main() {\n  %0 = hlo.exp %x : tensor<4xf32>\n  func.return\n}", ":2:16"),
        (ADD.replace("hlo.add %x", "hlo.add %x,"), ":2:"),
    ],
)
def test_bad_programs_give_one_message_with_line_and_column(tmp_path, capsys, text, place):
    path = tmp_path / "bad.mlir"
    path.write_text(text)
    assert main([str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"bad.mlir{place}" in captured.err and "Traceback" not in captured.err


def test_unreadable_files(tmp_path, capsys):
    assert main([str(tmp_path / "none.mlir")]) == 2
    (tmp_path / "latin.mlir").write_bytes(b"\xff\xfe")
    assert main([str(tmp_path / "latin.mlir")]) == 1
    assert "not UTF-8" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2


def test_split_chunks_keep_line_numbers():
    text = "a\n// -----\nb\nc\n// ----- comment\nd"
    chunks = list(split_chunks(text))
    for chunk, (line, content) in zip(chunks, [(0, "a"), (2, "b"), (5, "d")], strict=True):
        assert chunk.split("\n")[line] == content


def test_split_input_prints_all_pieces(tmp_path, capsys):
    path = tmp_path / "two.mlir"
    path.write_text(f"{ADD}// -----\n{ADD}")
    assert main([str(path), "--split-input-file"]) == 0
    out = capsys.readouterr().out
    assert out.count("hlo.add") == 2 and out.count("// -----") == 1


@pytest.mark.parametrize(
    "comment, code",
    [
        ("// expected-error @below {{unknown op 'hlo.plus'}}", 0),
        ("// expected-error @+1 {{unknown op}}", 0),
        ("// expected-error {{unknown op}}", 1),
        ("// expected-error @below {{something else}}", 1),
        ("", 1),
    ],
)
def test_verify_diagnostics(tmp_path, capsys, comment, code):
    path = tmp_path / "diagnostics.mlir"
    path.write_text(ADD.replace("  %0 = hlo.add", f"  {comment}\n  %0 = hlo.plus"))
    assert main([str(path), "--verify-diagnostics"]) == code
    assert ("unexpected error" in capsys.readouterr().err) == bool(code)


def test_verify_diagnostics_misses_an_error(tmp_path, capsys):
    path = tmp_path / "fine.mlir"
    path.write_text(f"// expected-error @below {{{{nothing}}}}\n{ADD}")
    assert main([str(path), "--verify-diagnostics"]) == 1
    assert "fine.mlir:2: expected the error 'nothing', but there was none" in capsys.readouterr().err


@pytest.fixture
def extra_passes(monkeypatch):
    for name, load in TABLE.items():
        monkeypatch.setitem(rhino.passes.PASSES, name, load)


def test_equivalence_names_the_first_pass_that_differs(program, capsys, extra_passes):
    assert main([program, "-p", "cse,wrong,dce", "--verify-equivalence"]) == 1
    err = capsys.readouterr().err
    assert "// equivalence: cse: 1 result equal" in err
    assert "pass wrong changes the meaning: result 0" in err and "dce" not in err


def test_verify_each_names_the_pass(program, capsys, extra_passes):
    assert main([program, "-p", "broken"]) == 1
    assert "after pass broken: hlo.add: operand 0 is used before its definition" in capsys.readouterr().err
    assert main([program, "-p", "broken", "--no-verify-each"]) == 0


def test_print_after_each(program, capsys):
    assert main([program, "-p", "cse,dce", "--print-after-each"]) == 0
    captured = capsys.readouterr()
    assert "// ----- after cse -----" in captured.err and captured.err.count("hlo.add") == 2
    assert captured.out.count("hlo.add") == 1


TRAINING = """
func.func @main(%w: tensor<4xf32> {rhino.name = "w", rhino.role = "parameter"},
                %x: tensor<4xf32> {rhino.name = "x", rhino.role = "input"})
    -> (tensor<f32> {rhino.name = "loss", rhino.role = "loss"}) {
  %0 = hlo.mul %w, %x : tensor<4xf32>
  %1 = hlo.reduce "sum" %0 dims [0] : tensor<4xf32> -> tensor<f32>
  func.return %1 : tensor<f32>
}
"""


def test_equivalence_through_passes_that_change_the_signature(tmp_path, capsys):
    path = tmp_path / "train.mlir"
    path.write_text(TRAINING)
    pipeline = (
        "autodiff,optimizer{kind=adam lr=1e-3},canonicalize,cse,dce,place{mesh=dp=2,tp=2},spmd,widen-floats"
    )
    assert main([str(path), "-p", pipeline, "--verify-equivalence"]) == 0
    lines = [line for line in capsys.readouterr().err.split("\n") if line.startswith("// equivalence")]
    assert lines[0] == "// equivalence: autodiff: 1 result equal"
    assert lines[1] == "// equivalence: optimizer: 1 result equal, 1 of before not among those after"
    assert lines[2].endswith("5 results equal") and len(lines) == 8


def test_difference_is_exact_for_integers_and_bounded_for_floats():
    assert difference(np.array([1, 2]), np.array([1, 2])) == 0
    assert difference(np.array([1, 2]), np.array([1, 3])) is None
    one = np.ones(3, np.float32)
    assert difference(one, one * np.float32(1 + 1e-6)) == pytest.approx(1e-6, rel=0.1)
    assert difference(one, one * 2) is None
    nan = np.array([np.nan, np.inf])
    assert difference(nan, nan) == 0
    assert difference(nan, np.array([np.nan, -np.inf])) is None
    assert difference(np.zeros(2), np.array([0, np.nan])) is None


def test_help_is_quick_and_nothing_imports_torch():
    code = "import sys, rhino.cli.opt as o\ntry: o.main(['--help'])\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'xdsl', 'numpy'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    assert "example:" in done.stdout
    code = "import sys, rhino.cli.opt as o\nassert o.main(['--list-passes']) == 0\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
