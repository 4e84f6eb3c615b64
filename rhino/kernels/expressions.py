"""How elementwise `hlo` ops are written in Triton. An op that is not here is not fused.

Left out on purpose: `tanh`-like functions of libdevice cannot be interpreted, and expm1, log1p and pow have no
Triton primitive of the same accuracy.
"""

from __future__ import annotations

UNARY: dict[str, str] = {
    "hlo.negate": "-{0}",
    "hlo.abs": "tl.abs({0})",
    "hlo.exp": "tl.exp({0})",
    "hlo.log": "tl.log({0})",
    "hlo.sqrt": "tl.sqrt({0})",
    "hlo.rsqrt": "1.0 / tl.sqrt({0})",
    "hlo.logistic": "tl.sigmoid({0})",
    "hlo.tanh": "2.0 * tl.sigmoid(2.0 * {0}) - 1.0",
    "hlo.sin": "tl.sin({0})",
    "hlo.cos": "tl.cos({0})",
    "hlo.erf": "tl.erf({0})",
    "hlo.floor": "tl.floor({0})",
    "hlo.ceil": "tl.ceil({0})",
    "hlo.not": "~{0}",
}

BINARY: dict[str, str] = {
    "hlo.add": "{0} + {1}",
    "hlo.sub": "{0} - {1}",
    "hlo.mul": "{0} * {1}",
    "hlo.div": "{0} / {1}",
    # NaN wins, which is not what Triton does unless told.
    "hlo.maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "hlo.minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "hlo.and": "{0} & {1}",
    "hlo.or": "{0} | {1}",
    "hlo.xor": "{0} ^ {1}",
}

#: Integer division in Triton truncates like C, and integer ops on floats do not exist.
FLOAT_ONLY = frozenset({"hlo.div", "hlo.exp", "hlo.log", "hlo.sqrt", "hlo.rsqrt", "hlo.logistic", "hlo.tanh",
                        "hlo.sin", "hlo.cos", "hlo.erf", "hlo.floor", "hlo.ceil"})  # fmt: skip

COMPARE: dict[str, str] = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _nan_wins(reduced: str) -> str:
    """A reduction that a NaN in the row wins; Triton's own max and min lose it."""
    return 'tl.where(tl.sum(({0} != {0}).to(tl.int32), 1) > 0, float("nan"), ' + reduced + ")"


#: Reduction kind -> the Triton reduction and the neutral element that masks lanes outside the row.
REDUCE: dict[str, tuple[str, str]] = {
    "sum": ("tl.sum({0}, 1)", "0.0"),
    "max": (_nan_wins("tl.max({0}, 1)"), 'float("-inf")'),
    "min": (_nan_wins("tl.min({0}, 1)"), 'float("inf")'),
}

#: Element type -> how a loaded value is computed with, and Triton's name of the stored type.
COMPUTE: dict[str, str] = {"f32": "tl.float32", "f16": "tl.float32", "bf16": "tl.float32",
                           "i1": "tl.int1", "i32": "tl.int32", "i64": "tl.int64"}  # fmt: skip
STORED: dict[str, str] = {"f32": "tl.float32", "f16": "tl.float16", "bf16": "tl.bfloat16",
                          "i1": "tl.int1", "i32": "tl.int32", "i64": "tl.int64"}  # fmt: skip
POINTER: dict[str, str] = {"f32": "*fp32", "f16": "*fp16", "bf16": "*bf16",
                           "i1": "*i1", "i32": "*i32", "i64": "*i64"}  # fmt: skip


def literal(value: complex, element: str) -> str:
    """A scalar constant (a real one) as Triton source."""
    assert isinstance(value, bool | int | float)
    if element == "i1":
        return "True" if value else "False"
    if element in ("i32", "i64"):
        return str(int(value))
    text = repr(float(value))
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text
