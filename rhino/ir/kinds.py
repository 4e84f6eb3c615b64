"""Which ops are alike: the same op of the same types and properties, wherever it stands.

A training step repeats its layers, so most of its ops are alike in all but the names of their operands. What is
known of one of them - that it verifies, how it is written - need not be found again for the others.
"""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, Operation

#: Attributes that are equal only if they are written the same. (Floats are not: 0.0 equals -0.0.)
_EXACT = frozenset((StringAttr, DenseArrayBase, IntegerAttr, UnitAttr))


class VerifiedByKind:
    """Mixed into op classes whose `verify_` looks at nothing that `kind_of` leaves out."""


def kind_of(op: Operation) -> Hashable:
    """Equal for two ops only if they differ in nothing but operands, regions, successors, location and place.

    It compares types and most attributes by identity, so it is good for one walk over ops that nothing changes or
    deletes meanwhile; ops that are alike may get different kinds when their attributes are separate objects.
    """
    return (
        type(op),
        *[id(value.type) for value in op.operands],
        None,
        *[id(value.type) for value in op.results],
        *[(name, _exact(attr)) for name, attr in op.properties.items()],
        None,
        *[(name, _exact(attr)) for name, attr in op.attributes.items()],
    )


def _exact(attr: Attribute) -> Hashable:
    if type(attr) in _EXACT:
        return attr
    if type(attr) is ArrayAttr:
        return tuple(map(_exact, attr.data))
    return id(attr)
