"""The example in every op's docstring parses, verifies, and prints as a fixed point."""

from __future__ import annotations

import re

import pytest

from rhino.dialects.hlo import (
    bits,
    clamp,
    complex_numbers,
    conv,
    dot,
    dynamic,
    fft,
    index,
    linalg,
    reduce,
    rng,
    shape,
    sort,
    window,
)
from rhino.dialects.text import parse_module, print_module

FAMILIES = (
    shape,
    dynamic,
    reduce,
    dot,
    conv,
    window,
    index,
    sort,
    clamp,
    bits,
    complex_numbers,
    linalg,
    fft,
    rng,
)
OPS = [op for family in FAMILIES for op in family.OPS]


def examples(op) -> list[str]:
    return [" ".join(e.split()) for e in re.findall(r"``(%[^`]*= hlo\.[^`]*)``", op.__doc__, re.DOTALL)]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_examples(op):
    assert examples(op)
    for example in examples(op):
        assert f"= {op.name} " in example
        body, signature = example.rsplit(" : ", 1)
        names = re.findall(r"%\w+", body.split("=", 1)[1])
        types = re.findall(r"tensor<(?:[^<>]|<[^>]*>)*>", signature.split("->")[0])
        types += types[-1:] * (len(names) - len(types))  # one type for all operands
        arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
        module = parse_module(f"func.func @main({arguments}) {{\n  {example}\n  func.return\n}}")
        text = print_module(module)
        assert f" = {op.name} " in text
        assert print_module(parse_module(text)) == text
