"""Builds `hlo` programs: one method per op, types inferred, errors raised where the mistake is made."""

from __future__ import annotations

from rhino.dialects.build.composite import CompositeBuilder
from rhino.dialects.build.conv import ConvBuilder
from rhino.dialects.build.core import BuilderCore
from rhino.dialects.build.dot import DotBuilder
from rhino.dialects.build.elementwise import ElementwiseBuilder
from rhino.dialects.build.generic import GenericBuilder
from rhino.dialects.build.index import IndexBuilder
from rhino.dialects.build.linalg import LinalgBuilder
from rhino.dialects.build.makers import MakersBuilder
from rhino.dialects.build.numbers import NumbersBuilder
from rhino.dialects.build.reduce import ReduceBuilder
from rhino.dialects.build.shape import ShapeBuilder


class Builder(
    CompositeBuilder,
    GenericBuilder,
    IndexBuilder,
    ConvBuilder,
    DotBuilder,
    ReduceBuilder,
    LinalgBuilder,
    ShapeBuilder,
    MakersBuilder,
    NumbersBuilder,
    ElementwiseBuilder,
):
    """Inserts ops at a point; every op gets the current location.

    Methods take and return xDSL values. For programs written by hand see `rhino.dialects.program`.
    """


__all__ = ["Builder", "BuilderCore"]
