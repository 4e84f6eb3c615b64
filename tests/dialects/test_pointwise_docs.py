"""The examples in the docstrings of elementwise, maker and composite ops parse, verify, and print as they stand."""

import inspect
import re

import pytest

from rhino.dialects.hlo import composite, constant, elementwise, random
from rhino.dialects.text import parse_module, print_module

OPS = [*elementwise.OPS, *constant.OPS, *random.OPS]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_inline_examples(op):
    (example,) = re.findall(r"``(%[^`]*= hlo\.[^`]*)``", op.__doc__)
    assert f"= {op.name} " in example
    head, signature = example.rsplit(" : ", 1)
    names = re.findall(r"%\w+", head.split("=", 1)[1])
    given = re.findall(r"tensor<[^>]*>", signature.split("->")[0])
    given += given[-1:] * (len(names) - len(given))  # one type for all operands
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, given, strict=False))
    text = print_module(parse_module(f"func.func @main({arguments}) {{\n  {example}\n  func.return\n}}"))
    assert example.split("=", 1)[1] in text
    assert print_module(parse_module(text)) == text


def test_composite_example():
    doc = inspect.cleandoc(composite.CompositeOp.__doc__)
    example = doc.split("Example::")[1].split("The pass")[0]
    text = print_module(
        parse_module(f"func.func @main(%x: tensor<4x8xf32>) {{\n{example}\n  func.return\n}}")
    )
    assert 'hlo.composite "softmax"(%x) {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32> {' in text


def test_every_op_has_a_method_of_its_name():
    from rhino.dialects.builder import Builder

    for op in OPS:
        name = op.name.removeprefix("hlo.")
        assert hasattr(Builder, name) or hasattr(Builder, f"{name}_"), name
