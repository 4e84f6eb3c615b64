"""Random programs on integer-valued data, small enough to read and exact in every order of evaluation.

Every value carries a bound on its magnitude; an op that would leave the integers a double can hold is not
made. Data types are f64, i64 and i1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, SSAValue

from rhino.check.choices import Choices
from rhino.dialects.builder import Builder
from rhino.ir import types
from rhino.ir.printing import print_module

LIMIT = 2.0**44
EXTENTS = (2, 1, 3, 4, 6, 8, 12, 4, 8)
MAX_ELEMENTS = 144


@dataclass(frozen=True)
class Argument:
    """Type of an argument and the range of its values."""

    type: types.Type
    low: int
    high: int


@dataclass(frozen=True)
class Program:
    """A module of the global stage and what to call it with."""

    module: ModuleOp
    arguments: tuple[Argument, ...]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("\n" + print_module(self.module))

    def data(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [
            rng.integers(a.low, a.high + 1, size=tuple(a.type.get_shape())).astype(
                types.numpy_dtype(a.type.element_type)
            )
            for a in self.arguments
        ]


@dataclass
class Maker:
    """A program under construction."""

    choices: Choices
    block: Block
    builder: Builder
    arguments: list[Argument] = field(default_factory=list)
    bounds: dict[SSAValue, float] = field(default_factory=dict)

    # Choices.

    def pick(self, options: Sequence) -> Any:
        return self.choices.pick(list(options))

    def integer(self, low: int, high: int) -> int:
        return self.choices.integer(low, high)

    def flip(self) -> bool:
        return self.choices.flip()

    def value(self, *names: str, rank: int = 0, ranks: int = 9) -> SSAValue:
        """A known value of one of the element types and of at least so many dimensions, or a new argument."""
        fits = [
            v
            for v in self.bounds
            if types.element_name(types.element_of(v)) in names and rank <= len(types.shape_of(v)) <= ranks
        ]
        if not fits or (len(fits) < 3 and self.integer(0, 3) == 3):
            return self.argument(self.shape(rank, min(3, ranks)), types.element(names[0]))
        # Mostly the latest, so that programs become deep rather than wide.
        return fits[-1] if self.flip() else self.pick(fits[::-1])

    def shape(self, low: int = 0, high: int = 3) -> tuple[int, ...]:
        out: list[int] = []
        if low == 0 and self.integer(0, 5):
            low = min(1, high)  # scalars have nothing to split
        for _ in range(self.integer(low, max(low, high))):
            out.append(self.pick([e for e in EXTENTS if e * math.prod(out) <= MAX_ELEMENTS] or [1]))
        return tuple(out)

    def argument(self, shape: Sequence[int], element: Attribute, low: int = -3, high: int = 3) -> SSAValue:
        if element == types.I1:
            low, high = 0, 1
        type = types.tensor(shape, element)
        self.arguments.append(Argument(type, low, high))
        value = self.block.insert_arg(type, len(self.block.args))
        value.name_hint = f"a{len(self.arguments) - 1}"
        self.bounds[value] = max(abs(low), abs(high))
        return value

    def know(self, value: SSAValue, bound: float) -> SSAValue:
        self.bounds[value] = bound
        return value

    def like(self, x: SSAValue) -> SSAValue:
        """A value of the type of `x`: a known one (maybe `x` itself) or a new argument."""
        fits = [v for v in self.bounds if v.type == x.type]
        if self.integer(0, 3) == 0:
            return self.argument(types.shape_of(x), types.element_of(x))
        return self.pick(fits[::-1])

    # Ops. Each makes one or more ops or returns without making any.

    def unary(self) -> None:
        x = self.value("f64", "i64", "i1")
        b = self.builder
        options = {
            "f64": [b.negate, b.abs, b.sign, b.floor, b.ceil, b.round_even],
            "i64": [b.negate, b.abs, b.sign, b.not_],
            "i1": [b.not_],
        }[types.element_name(types.element_of(x))]
        self.know(self.pick(options)(x), self.bounds[x] + 1)

    def convert(self) -> None:
        x = self.value("f64", "i64", "i1")
        others = [e for e in (types.F64, types.I64) if e != types.element_of(x)]
        self.know(self.builder.convert(x, self.pick(others)), self.bounds[x])

    def binary(self) -> None:
        x = self.value("f64", "i64", "i1")
        y = self.like(x)
        b, (bx, by) = self.builder, (self.bounds[x], self.bounds[y])
        arithmetic = [(b.add, bx + by), (b.sub, bx + by), (b.maximum, max(bx, by)), (b.minimum, max(bx, by))]
        if bx * by < LIMIT:
            arithmetic.append((b.mul, bx * by))
        logic = [(b.and_, 2 * (bx + by)), (b.or_, 2 * (bx + by)), (b.xor, 2 * (bx + by))]
        options = {"f64": arithmetic, "i64": arithmetic + logic, "i1": logic}
        make, bound = self.pick(options[types.element_name(types.element_of(x))])
        if bound < LIMIT:
            self.know(make(x, y), bound)

    def halve(self) -> None:
        x = self.value("f64")
        if self.bounds[x] < LIMIT / 2:
            twice = self.know(self.builder.add(x, x), 2 * self.bounds[x])
            self.know(self.builder.div(twice, self.builder.full_like(x, 2.0)), self.bounds[x])

    def compare(self) -> None:
        x = self.value("f64", "i64")
        y = self.like(x)
        how = self.pick(["eq", "ne", "lt", "le", "gt", "ge"])
        p = self.know(self.builder.compare(x, y, how), 1)
        if self.flip():
            self.know(self.builder.select(p, x, y), max(self.bounds[x], self.bounds[y]))

    def maker(self) -> None:
        b = self.builder
        shape = self.shape(0, 3)
        kind = self.integer(0, 3)
        if kind == 0 and shape:
            self.know(b.iota(types.tensor(shape, types.I64), self.integer(0, len(shape) - 1)), 12)
        elif kind == 1:
            self.know(b.full(shape, types.F64, self.integer(-2, 2)), 2)
        elif kind == 2:
            array = np.arange(math.prod(shape), dtype=np.float64).reshape(shape) % 5 - 2
            self.know(b.constant(array), 2)
        else:
            seed = b.full((), types.I64, self.integer(0, 3))
            draw = b.random_uniform(seed, b.linear_index(shape), types.F64)
            self.know(b.floor(b.mul(draw, b.full_like(draw, 8.0))), 8)

    def broadcast(self) -> None:
        x = self.value("f64", "i64", "i1")
        shape = types.shape_of(x)
        dims: list[int] = []
        out: list[int] = []
        for i in range(len(shape) + 1):
            while len(out) - i < 2 and self.integer(0, 2) == 0:
                out.append(self.pick(EXTENTS))
            if i < len(shape):
                dims.append(len(out))
                out.append(self.pick(EXTENTS) if shape[i] == 1 and self.flip() else shape[i])
        if math.prod(out) <= MAX_ELEMENTS:
            self.know(self.builder.broadcast_in_dim(x, out, dims), self.bounds[x])

    def reshape(self) -> None:
        x = self.value("f64", "i64", "i1")
        left = math.prod(types.shape_of(x))
        out = []
        for _ in range(self.integer(0, 3)):
            out.append(self.pick([d for d in range(1, left + 1) if left % d == 0]))
            left //= out[-1]
        if left > 1 or not out:
            out.append(left)
        self.know(self.builder.reshape(x, out), self.bounds[x])

    def transpose(self) -> None:
        x = self.value("f64", "i64", "i1", rank=2)
        perm = self.choices.order(range(len(types.shape_of(x))))
        self.know(self.builder.transpose(x, perm), self.bounds[x])

    def slice(self) -> None:
        x = self.value("f64", "i64", "i1", rank=1)
        start, limit, strides = [], [], []
        for extent in types.shape_of(x):
            whole = self.integer(0, 3) == 0
            unit = 1 if whole else self.pick(divisors(extent))
            start.append(0 if whole else unit * self.integer(0, extent // unit - 1))
            limit.append(
                extent if whole else start[-1] + unit * self.integer(1, (extent - start[-1]) // unit)
            )
            strides.append(1 if whole else self.pick([1, 1, 2, 3]))
        self.know(self.builder.slice(x, start, limit, strides), self.bounds[x])

    def pad(self) -> None:
        x = self.value("f64", "i64", "i1", rank=1)
        low, high, interior, total = [], [], [], 1
        for extent in types.shape_of(x):
            unit = self.pick([1, 2, extent])
            low.append(unit * self.integer(-1, 2) if self.flip() else 0)
            high.append(unit * self.integer(-1, 2) if self.flip() else 0)
            interior.append(self.pick([0, 0, 1]))
            total *= max(0, low[-1] + high[-1] + extent + (extent - 1) * interior[-1])
        value = self.pick([0, 1, -2])
        if types.element_of(x) == types.I1:
            value = bool(value)
        if 0 < total <= 2 * MAX_ELEMENTS:
            self.know(self.builder.pad(x, value, low, high, interior), max(2, self.bounds[x]))

    def concatenate(self) -> None:
        x = self.value("f64", "i64", "i1", rank=1)
        shape = types.shape_of(x)
        dim = self.integer(0, len(shape) - 1)

        def rest(v: SSAValue) -> tuple:
            s = types.shape_of(v)
            return types.element_of(v), s[:dim], s[dim + 1 :], len(s)

        fits = [v for v in self.bounds if len(types.shape_of(v)) > dim and rest(v) == rest(x)]
        parts = [x, *(self.pick(fits) for _ in range(self.integer(1, 2)))]
        if self.integer(0, 2) == 0:
            more = (*shape[:dim], self.pick(EXTENTS), *shape[dim + 1 :])
            parts.insert(self.integer(0, 2), self.argument(more, types.element_of(x)))
        if sum(math.prod(types.shape_of(p)) for p in parts) <= 2 * MAX_ELEMENTS:
            self.know(self.builder.concatenate(parts, dim), max(self.bounds[p] for p in parts))

    def reverse(self) -> None:
        x = self.value("f64", "i64", "i1", rank=1)
        dims = self.choices.subset(0, len(types.shape_of(x)) - 1)
        self.know(self.builder.reverse(x, sorted(dims)), self.bounds[x])

    def starts(self, shape: Sequence[int]) -> list[SSAValue]:
        out = []
        for extent in shape:
            if self.flip():
                out.append(self.argument((), types.I64, -1, extent))
            else:
                out.append(self.builder.full((), types.I64, self.integer(0, extent)))
        return out

    def dynamic(self) -> None:
        x = self.value("f64", "i64", "i1", rank=1)
        shape = types.shape_of(x)
        sizes = [self.pick([e, self.integer(1, e)]) for e in shape]
        if self.flip():
            self.know(self.builder.dynamic_slice(x, self.starts(shape), sizes), self.bounds[x])
        else:
            update = self.argument(sizes, types.element_of(x))
            out = self.builder.dynamic_update_slice(x, update, self.starts(shape))
            self.know(out, max(3, self.bounds[x]))

    def reduce(self) -> None:
        x = self.value("f64", "i64", "i1", rank=1)
        shape, bound = types.shape_of(x), self.bounds[x]
        dims = sorted(self.choices.subset(0, len(shape) - 1))
        n = math.prod(shape[d] for d in dims)
        options = [("max", bound), ("min", bound), ("sum", bound * n)]
        if n * math.log2(bound + 1) < math.log2(LIMIT):
            options.append(("prod", bound**n))
        if types.element_of(x) == types.I1:
            options = [("and", 1), ("or", 1)]
        kind, new = self.pick([o for o in options if o[1] < LIMIT])
        self.know(self.builder.reduce(x, dims, kind), new)

    def reduce_sum(self) -> None:
        x = self.value("f64", rank=1)
        shape = types.shape_of(x)
        dims = sorted(self.choices.subset(0, len(shape) - 1))
        n = math.prod(shape[d] for d in dims)
        if self.bounds[x] * n < LIMIT:
            self.know(self.builder.reduce(x, dims, "sum"), self.bounds[x] * n)

    def reduced_pair(self) -> None:
        """Two reductions of one shape, combined; either may have further uses."""
        x = self.value("f64", "i64", rank=1)
        y = self.like(x)
        dim = self.integer(0, len(types.shape_of(x)) - 1)
        kind = self.pick(["sum", "sum", "max"])
        factor = types.shape_of(x)[dim] if kind == "sum" else 1
        bx, by = self.bounds[x] * factor, self.bounds[y] * factor
        if bx * by >= LIMIT:
            return
        b = self.builder
        r = self.know(b.reduce(x, [dim], kind), bx)
        s = self.know(b.reduce(y, [dim], kind), by)
        combine, bound = self.pick(
            [(b.add, bx + by), (b.sub, bx + by), (b.maximum, max(bx, by)), (b.mul, bx * by)]
        )
        out = combine(r, s) if self.flip() else combine(r, r)
        self.know(out, max(bound, bx * bx if combine == b.mul else 2 * bx))
        if self.bounds[out] >= LIMIT:
            del self.bounds[out]

    def argmax(self) -> None:
        x = self.value("f64", "i64", rank=1)
        make = self.pick([self.builder.argmax, self.builder.argmin])
        dim = self.integer(0, len(types.shape_of(x)) - 1)
        self.know(make(x, dim), types.shape_of(x)[dim])

    def cumulative(self) -> None:
        x = self.value("f64", "i64", rank=1)
        dim = self.integer(0, len(types.shape_of(x)) - 1)
        kind = self.pick(["sum", "max", "min"])
        bound = self.bounds[x] * (types.shape_of(x)[dim] if kind == "sum" else 1)
        if bound < LIMIT:
            self.know(self.builder.cumulative(x, dim, kind, self.flip()), bound)

    def dot(self) -> None:
        x = self.value("f64", "i64")
        shape = types.shape_of(x)
        roles = [self.pick(["contract", "free", "batch"]) for _ in shape]
        batch = [d for d, r in enumerate(roles) if r == "batch"]
        contract = [d for d, r in enumerate(roles) if r == "contract"]
        n = math.prod(shape[d] for d in contract)
        left = math.prod(shape[d] for d, r in enumerate(roles) if r != "contract")
        free = [self.pick([e for e in EXTENTS if e * left <= MAX_ELEMENTS] or [1])] if self.flip() else []
        dims = [
            *(("b", d) for d in batch),
            *(("c", d) for d in contract),
            *(("f", i) for i in range(len(free))),
        ]
        order = self.choices.order(dims)
        extents = [free[i] if tag == "f" else shape[i] for tag, i in order]
        if self.flip() and not free and order == [("b", d) for d in batch] + [("c", d) for d in contract]:
            y = x if tuple(extents) == shape else self.argument(extents, types.element_of(x))
        else:
            y = self.argument(extents, types.element_of(x))
        bound = n * self.bounds[x] * self.bounds[y]
        if bound >= LIMIT:
            return
        batch_y = [order.index(("b", d)) for d in batch]
        contract_y = [order.index(("c", d)) for d in contract]
        self.know(self.builder.dot_general(x, y, (batch, batch_y), (contract, contract_y)), bound)

    def window(
        self, shape: Sequence[int]
    ) -> tuple[list[int], list[int], list[tuple[int, int]], list[int]] | None:
        """Sizes, strides, padding and dilation of windows that fit at least once."""
        sizes, strides, padding, dilation = [], [], [], []
        for extent in shape:
            size = self.integer(1, min(3, extent))
            sizes.append(size)
            strides.append(self.pick([1, size, 2]))
            padding.append((self.integer(0, size - 1), self.integer(0, size - 1)) if self.flip() else (0, 0))
            dilation.append(self.pick([1, 1, 2]))
            if (size - 1) * dilation[-1] + 1 > extent + sum(padding[-1]):
                return None
        return sizes, strides, padding, dilation

    def convolution(self) -> None:
        x = self.value("f64", rank=3, ranks=4)
        n, c, *spatial = types.shape_of(x)
        window = self.window(spatial)
        if window is None:
            return
        sizes, strides, padding, dilation = window
        fg = self.pick([g for g in (1, 2, 3, c) if c % g == 0])
        bg = self.pick([g for g in (1, 2, 3) if n % g == 0]) if fg == 1 else 1
        outputs = self.pick([1, 2, 3, 4]) * fg * bg
        w = self.argument((outputs, c // fg, *sizes), types.F64)
        bound = self.bounds[x] * 3 * c * math.prod(sizes)
        lhs = [self.pick([1, 1, 2]) for _ in spatial]
        if bound < LIMIT and n * outputs * math.prod(spatial) * math.prod(lhs) <= 8 * MAX_ELEMENTS:
            out = self.builder.convolution(x, w, strides, padding, lhs, dilation, fg, bg)
            self.know(out, bound)

    def reduce_window(self) -> None:
        x = self.value("f64", "i64", rank=1)
        window = self.window(types.shape_of(x))
        if window is None:
            return
        sizes, strides, padding, dilation = window
        kind = self.pick(["sum", "max"])
        if kind == "max":
            # A window of padding only would give -inf.
            padding = [
                (min(lo, 1) if size > 1 else 0, 0) for (lo, _), size in zip(padding, sizes, strict=True)
            ]
            if any(
                (size - 1) * d + 1 > e + lo
                for size, d, e, (lo, _) in zip(sizes, dilation, types.shape_of(x), padding, strict=True)
            ):
                return
        bound = self.bounds[x] * (math.prod(sizes) if kind == "sum" else 1)
        if bound >= LIMIT:
            return
        out = self.builder.reduce_window(x, kind, sizes, strides, padding, None, dilation)
        self.know(out, bound)
        if kind == "max" and types.element_of(x) == types.F64 and self.flip():
            source = self.argument(types.shape_of(out), types.F64)
            spread = self.builder.select_and_scatter(x, source, sizes, strides, padding, dilation)
            self.know(spread, 3 * math.prod(types.shape_of(out)))

    def take(self) -> None:
        x = self.value("f64", "i64", "i1", rank=1)
        shape = types.shape_of(x)
        dim = self.integer(0, len(shape) - 1)
        if self.flip():
            indices = self.argument(self.shape(0, 2), types.I64, -1, shape[dim])
            if math.prod(types.shape_of(indices)) * math.prod(shape) // shape[dim] <= 2 * MAX_ELEMENTS:
                self.know(self.builder.take(x, indices, dim), self.bounds[x])
        else:
            short = [e if d != dim else self.pick(EXTENTS) for d, e in enumerate(shape)]
            indices = self.argument(short, types.I64, 0, shape[dim] - 1)
            self.know(self.builder.take_along(x, indices, dim), self.bounds[x])

    def scatter(self) -> None:
        x = self.value("f64", "i64", rank=1)
        shape = types.shape_of(x)
        kind = self.pick(["add", "add", "max", "min", "set"])
        dim = self.integer(0, len(shape) - 1)
        if self.flip():
            count = self.pick([2, 3, 4, 6, 8])
            indices = self.argument((count,), types.I64, -1, shape[dim])
            window = [e for d, e in enumerate(shape) if d != dim]
            updates = self.argument([*window[:dim], count, *window[dim:]], types.element_of(x))
            out = self.builder.scatter(
                x,
                indices,
                updates,
                kind,
                update_window_dims=[d for d in range(len(shape)) if d != dim],
                inserted_window_dims=[dim],
                scatter_dims_to_operand_dims=[dim],
                index_vector_dim=1,
            )
        else:
            count = self.pick(EXTENTS)
            short = [e if d != dim else count for d, e in enumerate(shape)]
            indices = self.argument(short, types.I64, 0, shape[dim] - 1)
            updates = self.argument(short, types.element_of(x))
            out = self.builder.scatter_along(x, indices, updates, dim, kind)
        self.know(out, self.bounds[x] + 3 * count)

    def sort(self) -> None:
        x = self.value("f64", "i64", rank=1)
        dim = self.integer(0, len(types.shape_of(x)) - 1)
        operands = [x, self.like(x)] if self.flip() else [x]
        for value, operand in zip(self.builder.sort(operands, dim, self.flip()), operands, strict=True):
            self.know(value, self.bounds[operand])

    def top_k(self) -> None:
        x = self.value("f64", "i64", rank=1)
        last = types.shape_of(x)[-1]
        values, indices = self.builder.top_k(x, self.integer(1, last))
        self.know(values, self.bounds[x])
        self.know(indices, last)


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
