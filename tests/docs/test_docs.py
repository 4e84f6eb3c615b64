"""The documentation tells the truth: generated pages are up to date, examples run, links lead somewhere."""

import re
from pathlib import Path

import aten
import generate
import optable
import pytest
import reference

from rhino.dialects.hlo import Hlo
from rhino.passes import PASSES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [d for d in DOCUMENTS if d.name not in generate.GENERATED]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("name", generate.GENERATED)
def test_generated_pages_are_up_to_date(name):
    assert (generate.DOCS / name).read_text() == generate.GENERATED[name](), (
        "run `python docs/generate.py` and commit what it writes"
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=named)
def test_examples_run(path):
    generate.with_outputs(path.read_text())


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_links_lead_to_files(path):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
    assert not [t for t in targets if not (path.parent / t).exists()]


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=named)
def test_files_that_are_named_exist(path):
    found = re.findall(r"`((?:rhino|tests|benchmarks|examples|docs)/[\w./-]+)`", path.read_text())
    made_by_the_reader = {
        "rhino/passes/exact_reciprocals.py",
        "tests/filecheck/passes/exact_reciprocals.mlir",
    }
    assert not [f for f in found if f not in made_by_the_reader and not (ROOT / f).exists()]


def test_every_op_and_pass_is_listed():
    ops = (ROOT / "docs" / "ir-reference.md").read_text()
    assert all(f"### {op.name}\n" in ops for op in Hlo.operations)
    passes = (ROOT / "docs" / "passes.md").read_text()
    assert all(f"## {name}\n" in passes for name in PASSES)


def test_the_table_of_ops_has_every_op_and_no_hole():
    rows = re.findall(r"^\| `(hlo\.\w+)` \| (.*) \|$", (ROOT / "docs" / "ops.md").read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == [op.name for op in Hlo.operations]
    assert all(len(cells) == 5 and all(cells) for cells in (re.split(r" (?<!\\)\| ", row) for _, row in rows))
    assert not {name for name in optable.WITHOUT_ATEN if "none" not in optable.aten_names(name)} - {
        "hlo.yield"
    }


def test_what_aten_ops_are_made_of():
    made = aten.made_of()
    assert made["aten.exp.default"] == ("hlo.exp",)
    assert made["aten.sort.stable"] == ("hlo.iota", "hlo.sort")
    assert made["aten.view.default"] == ("hlo.reshape",)
    assert made["aten.alias.default"] == ()
    assert {"hlo.dot_general", "hlo.add"} <= set(made["aten.addmm.default"])


def test_derivatives_are_recognised():
    have = {
        op.name.removeprefix("hlo."): reference.has_derivative(op)
        for op in Hlo.operations
        if op.name != "hlo.yield"
    }
    assert all(
        have[name] for name in ("exp", "mul", "select", "convert", "dot_general", "reduce", "gather", "sort")
    )
    assert not any(have[name] for name in ("sign", "floor", "compare", "iota", "argmax", "is_finite"))


def test_the_commands_that_are_marked():
    """`.ci/run` takes the test command from the third line after its marker."""
    text = (ROOT / "README.md").read_text()
    for marker in ("run", "test"):
        block = re.search(rf"^<!-- {marker} -->\n```sh\n(.+)\n```$", text, re.MULTILINE)
        assert block is not None and "pip install" in block[1]


SHOWN = """\
# Title

```sh
rhino-opt examples/mlp.mlir -o copy.mlir
```

<!-- output of copy.mlir -->
```mlir
stale
```

```python
a = 1
```
```python
print(a + 1)
```
<!-- output -->
```
```

<!-- not run -->
```sh
no-such-command
```
"""


def test_outputs_are_replaced():
    text = generate.with_outputs(SHOWN)
    assert "stale" not in text and "hlo.tanh" in text
    assert "<!-- output -->\n```\n2\n```\n" in text
    assert generate.with_outputs(text) == text


@pytest.mark.parametrize("command", ["rhino-opt missing.mlir", "no-such-command", "rhino plan missing.py"])
def test_commands_that_fail_are_noticed(command):
    with pytest.raises(RuntimeError, match=r"missing|no-such-command"):
        generate.with_outputs(f"```sh\n{command}\n```\n")
