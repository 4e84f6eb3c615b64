"""`Tensor`: a value of a program under construction that reads like a numpy array.

Operators broadcast as numpy's do and take Python numbers; element types never change by themselves. Every op
remembers the line of the user's file that made it, and so does every error.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, LocationAttr, StringAttr, UnknownLoc
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.text import show_location

Number = bool | int | float
Index = Any

#: The files whose frames are not the user's.
_HERE = frozenset({__file__, str(Path(__file__).with_name("program.py"))})


def caller() -> LocationAttr:
    """Where in the user's code we are: the innermost frame outside of the files that build programs."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _HERE:
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return UnknownLoc()
    return FileLineColLoc(StringAttr(frame.f_code.co_filename), IntAttr(frame.f_lineno), IntAttr(0))


class ElementType:
    """``f32`` names an element type, ``f32[4, 8]`` is a tensor type, ``f32[()]`` that of a scalar."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mlir = types.element(name)

    def __getitem__(self, shape: int | tuple[int, ...]) -> types.Type:
        extents = (shape,) if isinstance(shape, int) else shape
        if not all(isinstance(e, int) and e >= 0 for e in extents):
            raise ProgramError(f"{self.name}{list(extents)} is no shape", remedy="use integers of 0 or more")
        return types.tensor(extents, self.mlir)

    def __repr__(self) -> str:
        return self.name


class Tensor:
    """A value of the function that is being traced; see the module's docstring."""

    #: numpy must leave `array + tensor` to us.
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, value: SSAValue, builder: Builder) -> None:
        self.value = value
        self.builder = builder

    # What it is.

    @property
    def type(self) -> types.Type:
        return types.type_of(self.value)

    @property
    def shape(self) -> tuple[int, ...]:
        return types.shape_of(self.value)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return types.element_name(self.type.element_type)

    def __repr__(self) -> str:
        return f"Tensor({types.show(self.type)})"

    def __bool__(self) -> bool:
        raise ProgramError(
            f"{self!r} has no truth value while the program is built",
            where=show_location(caller()),
            remedy="use where(condition, x, y) instead of if, and & | ~ instead of and, or, not",
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar Tensor has no length")
        return self.shape[0]

    # Operators.

    def __add__(self, other: Operand) -> Tensor:
        return self._binary("add", other)

    def __radd__(self, other: Operand) -> Tensor:
        return self._binary("add", other, swap=True)

    def __sub__(self, other: Operand) -> Tensor:
        return self._binary("sub", other)

    def __rsub__(self, other: Operand) -> Tensor:
        return self._binary("sub", other, swap=True)

    def __mul__(self, other: Operand) -> Tensor:
        return self._binary("mul", other)

    def __rmul__(self, other: Operand) -> Tensor:
        return self._binary("mul", other, swap=True)

    def __truediv__(self, other: Operand) -> Tensor:
        return self._binary("div", other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return self._binary("div", other, swap=True)

    def __pow__(self, other: Operand) -> Tensor:
        return self._binary("pow", other)

    def __rpow__(self, other: Operand) -> Tensor:
        return self._binary("pow", other, swap=True)

    def __and__(self, other: Operand) -> Tensor:
        return self._binary("and_", other)

    def __rand__(self, other: Operand) -> Tensor:
        return self._binary("and_", other, swap=True)

    def __or__(self, other: Operand) -> Tensor:
        return self._binary("or_", other)

    def __ror__(self, other: Operand) -> Tensor:
        return self._binary("or_", other, swap=True)

    def __xor__(self, other: Operand) -> Tensor:
        return self._binary("xor", other)

    def __rxor__(self, other: Operand) -> Tensor:
        return self._binary("xor", other, swap=True)

    def __neg__(self) -> Tensor:
        return self._unary("negate")

    def __abs__(self) -> Tensor:
        return self._unary("abs")

    def __invert__(self) -> Tensor:
        return self._unary("not_")

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self._compare("ne", other)

    def __lt__(self, other: Any) -> Tensor:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Tensor:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Tensor:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Tensor:
        return self._compare("ge", other)

    def __matmul__(self, other: Operand) -> Tensor:
        return self._emit(lambda b: b.matmul(self.value, self._operand(other, "matmul").value))

    def __rmatmul__(self, other: Operand) -> Tensor:
        return self._emit(lambda b: b.matmul(self._operand(other, "matmul").value, self.value))

    # Element by element.

    def exp(self) -> Tensor:
        return self._unary("exp")

    def expm1(self) -> Tensor:
        return self._unary("expm1")

    def log(self) -> Tensor:
        return self._unary("log")

    def log1p(self) -> Tensor:
        return self._unary("log1p")

    def sqrt(self) -> Tensor:
        return self._unary("sqrt")

    def rsqrt(self) -> Tensor:
        return self._unary("rsqrt")

    def tanh(self) -> Tensor:
        return self._unary("tanh")

    def sigmoid(self) -> Tensor:
        return self._unary("logistic")

    def sin(self) -> Tensor:
        return self._unary("sin")

    def cos(self) -> Tensor:
        return self._unary("cos")

    def erf(self) -> Tensor:
        return self._unary("erf")

    def floor(self) -> Tensor:
        return self._unary("floor")

    def ceil(self) -> Tensor:
        return self._unary("ceil")

    def sign(self) -> Tensor:
        return self._unary("sign")

    def relu(self) -> Tensor:
        """0 where negative; the gradient at 0 is 0, and NaN stays, as in torch."""
        return where(self <= 0, 0, self)

    def maximum(self, other: Operand) -> Tensor:
        return self._binary("maximum", other)

    def minimum(self, other: Operand) -> Tensor:
        return self._binary("minimum", other)

    def astype(self, element: ElementType | str) -> Tensor:
        """The same values in another element type."""
        name = element.name if isinstance(element, ElementType) else element
        return self._emit(lambda b: b.convert(self.value, types.element(name)))

    # Reductions.

    def sum(self, dims: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("sum", dims, keepdims)

    def prod(self, dims: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("prod", dims, keepdims)

    def max(self, dims: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("max", dims, keepdims)

    def min(self, dims: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("min", dims, keepdims)

    def all(self, dims: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("and", dims, keepdims)

    def any(self, dims: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self._reduce("or", dims, keepdims)

    def mean(self, dims: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        total = self._reduce("sum", dims, keepdims)
        return total / (self.size / total.size)

    def argmax(self, dim: int) -> Tensor:
        return self._emit(lambda b: b.argmax(self.value, self._dims(dim)[0]))

    def cumsum(self, dim: int) -> Tensor:
        return self._emit(lambda b: b.cumulative(self.value, self._dims(dim)[0], "sum"))

    def softmax(self, dim: int = -1) -> Tensor:
        powers = (self - self.max(dim, keepdims=True)).exp()
        return powers / powers.sum(dim, keepdims=True)

    # Shape.

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Row-major; one extent may be -1."""
        extents = _flat(shape)
        if extents.count(-1) == 1:
            rest = math.prod(e for e in extents if e != -1)
            extents = [self.size // rest if e == -1 and rest else e for e in extents]
        return self._emit(lambda b: b.reshape(self.value, extents))

    def transpose(self, *perm: int | Sequence[int]) -> Tensor:
        """Dimensions in the order of `perm`, or reversed without one."""
        order = self._dims(_flat(perm)) if perm else list(reversed(range(self.rank)))
        return self._emit(lambda b: b.transpose(self.value, order))

    @property
    def T(self) -> Tensor:
        return self.transpose()

    def broadcast_to(self, *shape: int | Sequence[int]) -> Tensor:
        return self._emit(lambda b: b.broadcast_to(self.value, _flat(shape)))

    def __getitem__(self, index: Index) -> Tensor:
        """Integers, slices with positive steps, ``None``, ``...``, or one integer Tensor (picks along dim 0)."""
        if isinstance(index, Tensor):
            self._same_function(index)
            return self._emit(lambda b: b.take(self.value, index.value, 0))
        return self._basic_index(index if isinstance(index, tuple) else (index,))

    def _basic_index(self, index: tuple[Index, ...]) -> Tensor:
        used = sum(i is not None and i is not Ellipsis for i in index)
        if used > self.rank:
            raise self._error(f"{used} indices for {self!r}")
        if Ellipsis not in [i if i is Ellipsis else 0 for i in index]:
            index = (*index, Ellipsis)
        start, limit, strides, shape = [], [], [], []
        dim = 0
        for item in index:
            if item is None:
                shape.append(1)
                continue
            for each in [slice(None)] * (self.rank - used) if item is Ellipsis else [item]:
                extent = self.shape[dim]
                if isinstance(each, slice):
                    first, last, step = each.indices(extent)
                    if step < 1:
                        raise self._error(
                            f"step {step} in an index of {self!r}", "flip it with builder.reverse"
                        )
                    last = max(first, last)
                    shape.append(len(range(first, last, step)))
                elif isinstance(each, int | np.integer) and -extent <= each < extent:
                    first = int(each) % extent
                    last, step = first + 1, 1
                else:
                    raise self._error(f"index {each!r} does not fit dimension {dim} of {self!r}")
                start.append(first)
                limit.append(last)
                strides.append(step)
                dim += 1
        cut = self._emit(lambda b: b.slice(self.value, start, limit, strides)) if self.rank else self
        return cut.reshape(shape) if tuple(shape) != cut.shape else cut

    # How it is done.

    def _emit(self, build: Callable[[Builder], SSAValue]) -> Tensor:
        return emit(self.builder, build)

    def _unary(self, name: str) -> Tensor:
        return self._emit(lambda b: getattr(b, name)(self.value))

    def _binary(self, name: str, other: object, swap: bool = False) -> Tensor:
        x, y = broadcast(name.rstrip("_"), self, self._operand(other, name.rstrip("_")))
        if swap:
            x, y = y, x
        return self._emit(lambda b: getattr(b, name)(x.value, y.value))

    def _compare(self, direction: str, other: object) -> Tensor:
        x, y = broadcast(direction, self, self._operand(other, direction))
        return self._emit(lambda b: b.compare(x.value, y.value, direction))

    def _reduce(self, kind: str, dims: int | Sequence[int] | None, keepdims: bool) -> Tensor:
        which = self._dims(range(self.rank) if dims is None else dims)
        out = self._emit(lambda b: b.reduce(self.value, which, kind))
        if keepdims:
            out = out.reshape([1 if d in which else e for d, e in enumerate(self.shape)])
        return out

    def _dims(self, dims: int | Sequence[int]) -> list[int]:
        listed = [dims] if isinstance(dims, int) else list(dims)
        for d in listed:
            if not -self.rank <= d < self.rank:
                raise self._error(f"no dimension {d} in {self!r}")
        return [d % self.rank for d in listed]

    def _operand(self, other: object, name: str) -> Tensor:
        """`other` as a Tensor of this one's element type."""
        if isinstance(other, Tensor):
            self._same_function(other)
            if other.dtype != self.dtype:
                raise self._error(
                    f"{name} of {types.show(self.type)} and {types.show(other.type)}: element types differ",
                    f'convert one of them, as in y.astype("{self.dtype}")',
                )
            return other
        if isinstance(other, np.ndarray):
            array = other
            return self._operand(self._emit(lambda b: b.constant(array)), name)
        if isinstance(other, np.generic):
            other = other.item()
        if not isinstance(other, bool | int | float):
            raise self._error(
                f"{name} of {self!r} and {type(other).__name__}", "use a Tensor, an array or a number"
            )
        element = self.type.element_type
        if not types.is_float(element) and isinstance(other, float):
            raise self._error(
                f"{name} of {self!r} and {other}, which is no {self.dtype}", "convert the Tensor first"
            )
        return self._emit(lambda b: b.full((), element, other))

    def _same_function(self, other: Tensor) -> None:
        if other.builder is not self.builder:
            raise self._error(
                f"{other!r} belongs to another function than {self!r}", "pass it in as an argument"
            )

    def _error(self, message: str, remedy: str | None = None) -> ProgramError:
        return ProgramError(message, where=show_location(caller()), remedy=remedy)


Operand = Tensor | np.ndarray | Number


def emit(builder: Builder, build: Callable[[Builder], SSAValue]) -> Tensor:
    """Build an op with the user's line as its location; errors get it too."""
    location = caller()
    try:
        with builder.at(location):
            return Tensor(build(builder), builder)
    except ProgramError as error:
        where = error.where or show_location(location)
        raise ProgramError(error.message, where=where, remedy=error.remedy) from None


def broadcast(name: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the shape that numpy would give them. Raises ProgramError naming both if there is none."""
    try:
        shape = np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise ProgramError(
            f"{name}: {types.show(x.type)} and {types.show(y.type)} do not broadcast",
            where=show_location(caller()),
            remedy="extents must be equal or 1, counted from the last dimension",
        ) from None
    return tuple(t if t.shape == shape else t.broadcast_to(shape) for t in (x, y))  # type: ignore[return-value]


def where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """`x` where `condition` (i1) holds, `y` elsewhere. At least one of them must be a Tensor."""
    if isinstance(x, Tensor):
        x, y = broadcast("where", x, x._operand(y, "where"))
    elif isinstance(y, Tensor):
        x, y = broadcast("where", y._operand(x, "where"), y)
    else:
        raise ProgramError("where needs a Tensor among its choices", where=show_location(caller()))
    x._same_function(condition)
    if condition.rank:
        condition, x = broadcast("where", condition, x)
        y = y.broadcast_to(x.shape) if y.shape != x.shape else y
    a, b_ = x, y
    return a._emit(lambda b: b.select(condition.value, a.value, b_.value))


def concatenate(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join Tensors along a dimension."""
    if not tensors:
        raise ProgramError("nothing to concatenate", where=show_location(caller()))
    first = tensors[0]
    others = [first._operand(t, "concatenate") for t in tensors[1:]]
    return first._emit(lambda b: b.concatenate([t.value for t in (first, *others)], first._dims(dim)[0]))


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join Tensors of one shape along a new dimension."""
    at = dim if dim >= 0 else dim + (tensors[0].rank + 1 if tensors else 0)
    return concatenate([t.reshape([*t.shape[:at], 1, *t.shape[at:]]) for t in tensors], at)


def _flat(shape: Sequence[int | Sequence[int]]) -> list[int]:
    """``(2, 3)`` and ``((2, 3),)`` are both the shape [2, 3]."""
    if len(shape) == 1 and not isinstance(shape[0], int):
        return [int(e) for e in shape[0]]
    return [int(e) for e in shape]  # type: ignore[arg-type]
