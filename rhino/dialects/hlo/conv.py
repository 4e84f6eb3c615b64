"""The conv ops."""

from __future__ import annotations

from rhino.dialects.hlo.base import HloOp

OPS: list[type[HloOp]] = []
