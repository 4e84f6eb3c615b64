"""docs/add-a-pass.md, followed to the letter: its pass runs on the command line and passes its own test."""

import io
import re
import shlex

import generate
import numpy as np
import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

from rhino.cli import opt
from rhino.dialects.program import f16, function
from rhino.ir.evaluate import run_module
from rhino.passes import PASSES

PAGE = (generate.DOCS / "add-a-pass.md").read_text()


@pytest.fixture
def page(monkeypatch):
    """What the code on the page defines, with the pass in the table."""
    names = {"__name__": "example"}
    for block in generate.blocks(PAGE):
        if block.runs:
            generate.run_python(block.text, names)
    monkeypatch.setitem(PASSES, "exact-reciprocals", lambda: names["ExactReciprocalsPass"])
    return names


def test_its_filecheck_test(page, tmp_path, capsys):
    (test,) = re.findall(r"```mlir\n(// RUN.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "test.mlir"
    file.write_text(test)
    runs = re.findall(r"// RUN: rhino-opt (.*) \| filecheck %s ?(.*)", test)
    assert len(runs) == 2
    for arguments, prefix in runs:
        assert opt.main([str(file) if a == "%s" else a for a in shlex.split(arguments)]) == 0
        prefixes = [prefix.removeprefix("--check-prefix=") or "CHECK"]
        options = Options(match_filename=str(file), check_prefixes=prefixes)
        matcher = Matcher(options, FInput("stdin", capsys.readouterr().out), Parser.from_opts(options))
        matcher.stderr = io.StringIO()
        assert matcher.run() == 0, matcher.stderr.getvalue()


@pytest.mark.parametrize("divisor", [2.0**k for k in range(-14, 15)] + [-4.0])
def test_bits_are_equal_in_the_narrowest_type(page, divisor):
    """Every f16 there is, divided and multiplied."""
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)

    @function(f16[2**16])
    def main(x):
        return x / np.full(x.shape, divisor, np.float16)

    want = run_module(main.module, [every])
    page["ExactReciprocalsPass"]().apply(None, main.module)
    assert "hlo.div" not in str(main)
    (got,) = run_module(main.module, [every])
    nan = np.isnan(want[0])
    assert np.array_equal(np.isnan(got), nan)
    assert np.array_equal(got[~nan].view(np.uint16), want[0][~nan].view(np.uint16))


@pytest.mark.parametrize("divisor", [3.0, 0.0, 2.0**15, float("inf"), float("nan")])
def test_other_divisors_stay(page, divisor):
    @function(f16[4])
    def main(x):
        return x / np.full(x.shape, divisor, np.float16)

    page["ExactReciprocalsPass"]().apply(None, main.module)
    assert "hlo.div" in str(main)
