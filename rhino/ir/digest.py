"""A digest of what a program computes: its ops, how they are connected, and their attributes.

Locations and the names of values play no part. Attributes are put into words once each, however many ops share them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from io import StringIO

from xdsl.ir import Attribute, Block, Operation, SSAValue

from rhino.ir.printing import RhinoPrinter


def digest(module: Operation) -> str:
    """SHA-256 of a module, as 64 hexadecimal digits; the same after printing and parsing."""
    words = _Words()
    words.op(module)
    return words.hash.hexdigest()


class _Words:
    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self._values: dict[SSAValue, int] = {}
        self._blocks: dict[Block, int] = {}
        self._text: dict[int, str] = {}

    def op(self, op: Operation) -> None:
        operands = ",".join(str(self._value(v)) for v in op.operands)
        results = ",".join(f"{self._value(r)}:{self._show(r.type)}" for r in op.results)
        successors = ",".join(str(self._block(b)) for b in op.successors)
        said = f"{self._dictionary(op.properties)}{self._dictionary(op.attributes)}"
        self._say(f"{op.name}({operands})[{successors}]{said}->{results}")
        for region in op.regions:
            self._say("{")
            for block in region.blocks:
                arguments = ",".join(f"{self._value(a)}:{self._show(a.type)}" for a in block.args)
                self._say(f"^{self._block(block)}({arguments})")
                for inner in block.ops:
                    self.op(inner)
            self._say("}")

    def _say(self, text: str) -> None:
        self.hash.update(text.encode())
        self.hash.update(b"\n")

    def _value(self, value: SSAValue) -> int:
        return self._values.setdefault(value, len(self._values))

    def _block(self, block: Block) -> int:
        return self._blocks.setdefault(block, len(self._blocks))

    def _dictionary(self, attributes: Mapping[str, Attribute]) -> str:
        return "<" + ";".join(f"{key}={self._show(attributes[key])}" for key in sorted(attributes)) + ">"

    def _show(self, attribute: Attribute) -> str:
        key = id(attribute)  # they outlive this object: the module holds them
        if key not in self._text:
            stream = StringIO()
            RhinoPrinter(stream).print_attribute(attribute)
            self._text[key] = stream.getvalue()
        return self._text[key]
