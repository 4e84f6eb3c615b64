"""Builder method of the composite op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.build.core import BuilderCore
from rhino.dialects.hlo.composite import CompositeOp, YieldOp
from rhino.ir import types
from rhino.ir.errors import ProgramError


class CompositeBuilder(BuilderCore):
    """See `rhino.dialects.hlo.composite`."""

    def composite(
        self,
        name: str,
        operands: Sequence[SSAValue],
        attributes: Mapping[str, Attribute] | None,
        body: Callable[..., Sequence[SSAValue]],
    ) -> tuple[SSAValue, ...]:
        """A named op whose region `body(builder, *arguments)` builds and whose results it returns.

        The region is isolated: it may use its own arguments only.
        """
        block = Block(arg_types=[o.type for o in operands])
        inner = type(self)(InsertPoint.at_end(block))
        inner.location = self.location
        inner.insert(YieldOp.create(operands=list(body(inner, *block.args))))
        region = Region(block)
        try:
            result_types = CompositeOp.infer_from([types.type_of(o) for o in operands], region)
        except ProgramError as error:
            raise ProgramError(f"{CompositeOp.name} {name}: {error.message}", remedy=error.remedy) from None
        properties: dict[str, Attribute] = {"composite_name": StringAttr(name)}
        if attributes:
            properties["composite_attributes"] = DictionaryAttr(dict(attributes))
        op = CompositeOp.create(
            operands=operands,
            result_types=result_types,
            properties=properties,
            regions=[region],
            location=self.location,
        )
        return tuple(self.insert(op).results)
