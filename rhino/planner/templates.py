"""Expert plans for an arbitrary traced program, found from its structure and not from names of layers.

Each template narrows the plan space, and the same network picks the best plan in what is left:

* ``dp``: the batch is split over all devices, in the inputs and in every op that it reaches, even where copies of
  the work on every device would cost less; parameters, buffers and optimizer states are replicated.
* ``zero3``: as dp, but parameters and states are stored in as many pieces as their shape allows.
* ``megatron``: over the ``tp`` axis every matrix product with a parameter splits that parameter in place, by column
  or by row, and neither batch nor tokens are split; over the other axes as dp. A fused QKV projection may be split in
  strides, each of the three by heads, as Megatron stores it.
* ``fsdp_tp``: over the ``tp`` axis as megatron, and tokens may be split there in every op but the matrix products
  (sequence parallel); over the other axes as zero3. The two-dimensional plan that torchtitan has by hand.

The batch is the leading dimension of the inputs. What it reaches is followed through the ops' sharding rules: over
data-parallel axes an op that sees it is split along it, and along nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rhino.ir.errors import PlanError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.planner.candidates import COMPUTE, Choice, Cut, Mark, cut_of
from rhino.planner.cost import VIEWS
from rhino.planner.graph import Graph
from rhino.planner.space import Restriction

TEMPLATES = ("dp", "zero3", "megatron", "fsdp_tp")

#: Templates that have an axis for tensor parallelism.
TENSOR_TEMPLATES = frozenset({"megatron", "fsdp_tp"})

#: Axis names that say tensor parallelism.
TENSOR_AXES = frozenset({"tp", "model", "tensor"})

#: Ops through which a parameter is still itself.
_PLAIN = VIEWS | {"hlo.convert"}


@dataclass(frozen=True)
class Reach:
    """The cuts by which ops, and the digits by which values, see some dimensions of the inputs."""

    nodes: tuple[frozenset[Cut], ...]
    values: tuple[frozenset[Mark], ...]


def reach(graph: Graph, seeds: Iterable[tuple[int, Mark]]) -> Reach:
    """Follow digits of values through all ops that carry them, forward and backward; remembered in the graph."""
    seeds = tuple(seeds)
    key = "reach", seeds
    if key not in graph.memo:
        graph.memo[key] = _reach(graph, seeds)
    found: Reach = graph.memo[key]
    return found


def _reach(graph: Graph, seeds: Iterable[tuple[int, Mark]]) -> Reach:
    nodes: list[set[Cut]] = [set() for _ in graph.nodes]
    values: list[set[Mark]] = [set() for _ in graph.values]
    todo = list(seeds)
    while todo:
        value, mark = todo.pop()
        if mark in values[value] or graph.follows(value):
            continue
        values[value].add(mark)
        at = graph.values[value]
        around = [(user, graph.nodes[user].kind.rule.operands[i]) for user, i in at.uses]
        if at.producer is not None:
            around.append((at.producer, graph.nodes[at.producer].kind.rule.results[at.port]))
        for index, dims in around:
            node = graph.nodes[index]
            for cut in cut_of(node.kind.rule, dims, mark):
                if cut in nodes[index]:
                    continue
                nodes[index].add(cut)
                sides = zip(
                    (*node.operands, *node.results),
                    (*node.kind.rule.operands, *node.kind.rule.results),
                    strict=True,
                )
                for other, own in sides:
                    if (where := node.kind.rule.locate(own, cut.factor)) is not None:
                        todo.append((other, (where[0], cut.period * where[1])))
    return Reach(tuple(map(frozenset, nodes)), tuple(map(frozenset, values)))


def inputs(graph: Graph) -> list[int]:
    """Arguments with the role ``input`` and at least one dimension."""
    return [i for i, slot in enumerate(graph.arguments) if slot.role == "input" and graph.values[i].shape]


def batch_inputs(graph: Graph) -> list[int]:
    """Inputs that carry the batch: those whose leading extent is the most common one (the larger of equals)."""
    leading = [graph.values[i].shape[0] for i in inputs(graph)]
    if not leading:
        return []
    extent = max(leading, key=lambda e: (leading.count(e), e))
    return [i for i in inputs(graph) if graph.values[i].shape[0] == extent]


def batch_of(graph: Graph) -> int:
    """The batch size, 1 when the program has no inputs."""
    found = batch_inputs(graph)
    return graph.values[found[0]].shape[0] if found else 1


def tensor_axes(mesh: Mesh) -> tuple[int, ...]:
    """Positions of the mesh axes for tensor parallelism: by name, else the last one."""
    named = tuple(i for i, (name, _) in enumerate(mesh.axes) if name in TENSOR_AXES)
    return named or (len(mesh.axes) - 1,)


def template(name: str, graph: Graph, mesh: Mesh) -> Restriction:
    """The plan space of a template. Raises PlanError saying why it does not apply."""
    tensor = tensor_axes(mesh) if name in TENSOR_TEMPLATES else ()
    data = tuple(i for i in range(len(mesh.axes)) if i not in tensor and mesh.axes[i][1] > 1)
    pieces = 1
    for i in data:
        pieces *= mesh.axes[i][1]
    batch = batch_of(graph)
    if batch % pieces:
        raise PlanError(
            f"a batch of {batch} cannot be divided over {pieces} devices",
            remedy=f"use a batch that is a multiple of {pieces}, or fewer devices for data parallelism",
        )
    of_batch = _divisible(reach(graph, [(i, (0, batch)) for i in batch_inputs(graph)]), pieces)
    if name == "dp":
        return Restriction(_batch_only(of_batch), _stored_whole(graph, of_batch))
    if name == "zero3":
        return Restriction(
            _batch_first(graph, of_batch), _stored_in_pieces(graph, of_batch), _most_pieces(graph), (data,)
        )
    if name not in TENSOR_TEMPLATES:
        raise PlanError(f"no template '{name}'", remedy=f"templates are {', '.join(TEMPLATES)}")
    weights, stored = _weight_cuts(graph, mesh, tensor)
    if not any(weights.values()):
        raise PlanError(
            f"no matrix product has a parameter that can be divided over {mesh}",
            remedy="tensor parallelism needs a dimension of a weight that the tensor axis divides",
        )
    if name == "megatron":
        over_data = Restriction(_batch_only(of_batch), _stored_whole(graph, of_batch))
        spared = None
    else:
        over_data = Restriction(
            _batch_first(graph, of_batch), _stored_in_pieces(graph, of_batch, mesh, tensor)
        )
        spared = reach(graph, [(i, (0, batch)) for i in batch_inputs(graph)])
    over_tensor = _weights_in_place(graph, weights, stored, spared)

    def choices(index: int, axis: int, known: tuple[Choice, ...]) -> tuple[Choice, ...]:
        return (over_tensor if axis in tensor else over_data).choices(index, axis, known)

    def marks(index: int, axis: int, known: tuple[Mark | None, ...]) -> tuple[Mark | None, ...]:
        return (over_tensor if axis in tensor else over_data).marks(index, axis, known)

    data_names = frozenset(mesh.axes[i][0] for i in data)
    layouts = None if name == "megatron" else _most_pieces(graph, data_names)
    return Restriction(choices, marks, layouts, together=(data,))


Choices = Callable[[int, int, tuple[Choice, ...]], tuple[Choice, ...]]
Marks = Callable[[int, int, tuple[Mark | None, ...]], tuple[Mark | None, ...]]


def _divisible(found: Reach, pieces: int) -> Reach:
    """What can be cut in so many pieces: all data-parallel axes together take one digit."""
    return Reach(
        tuple(frozenset(c for c in cuts if c.period % pieces == 0) for cuts in found.nodes),
        tuple(frozenset(m for m in marks if m[1] % pieces == 0) for marks in found.values),
    )


def _batch_only(of_batch: Reach) -> Choices:
    """Ops that the batch reaches are split along it, others are not split."""

    def choices(index: int, axis: int, known: tuple[Choice, ...]) -> tuple[Choice, ...]:
        split = tuple(c for c in known if isinstance(c, Cut) and c in of_batch.nodes[index])
        return split or tuple(c for c in known if not isinstance(c, Cut))

    return choices


def _batch_first(graph: Graph, of_batch: Reach) -> Choices:
    """As `_batch_only`, but ops the batch does not reach and that are no matrix products are free."""
    only = _batch_only(of_batch)

    def choices(index: int, axis: int, known: tuple[Choice, ...]) -> tuple[Choice, ...]:
        if of_batch.nodes[index] or graph.nodes[index].kind.name in COMPUTE:
            return only(index, axis, known)
        return known

    return choices


def _stored_whole(graph: Graph, of_batch: Reach) -> Marks:
    """Inputs are split along the batch if they have it, every other argument is replicated."""

    def marks(index: int, axis: int, known: tuple[Mark | None, ...]) -> tuple[Mark | None, ...]:
        if graph.arguments[index].role != "input":
            return (None,)
        return tuple(m for m in known if m is not None and m in of_batch.values[index]) or (None,)

    return marks


def _stored_in_pieces(
    graph: Graph, of_batch: Reach, mesh: Mesh | None = None, tensor: Sequence[int] = ()
) -> Marks:
    """Parameters and states may be split into contiguous blocks of any dimension, or of the blocks that the `tensor`
    axes of `mesh` leave.
    """
    whole = _stored_whole(graph, of_batch)
    inside = math.prod(mesh.axes[i][1] for i in tensor) if mesh is not None else 1

    def marks(index: int, axis: int, known: tuple[Mark | None, ...]) -> tuple[Mark | None, ...]:
        if graph.arguments[index].role not in ("parameter", "state"):
            return whole(index, axis, known)
        shape = graph.values[index].shape
        return tuple(m for m in known if m is None or m[1] == shape[m[0]] or m[1] * inside == shape[m[0]])

    return marks


def _weights_in_place(
    graph: Graph, weights: dict[int, frozenset[str]], stored: frozenset[str], spared: Reach | None
) -> Restriction:
    """Tensor parallelism: matrix products split their weights and nothing of the inputs. No other op splits anything
    of the inputs either or, where `spared` is given, only that.
    """
    every = reach(
        graph, [(i, (d, extent)) for i in inputs(graph) for d, extent in enumerate(graph.values[i].shape)]
    )

    def choices(index: int, axis: int, known: tuple[Choice, ...]) -> tuple[Choice, ...]:
        free = spared is not None and graph.nodes[index].kind.name not in COMPUTE
        barred = spared.nodes[index] if spared is not None and free else every.nodes[index]
        own = tuple(c for c in known if c not in barred)
        forced = tuple(c for c in own if isinstance(c, Cut) and c.factor in weights.get(index, ()))
        return forced or own

    def marks(index: int, axis: int, known: tuple[Mark | None, ...]) -> tuple[Mark | None, ...]:
        own = tuple(m for m in known if m not in every.values[index])
        slot = graph.arguments[index]
        split = (slot.of if slot.role == "state" else slot.name) in stored
        return (tuple(m for m in own if m is not None) if split else ()) or own

    return Restriction(choices, marks)


def _most_pieces(
    graph: Graph, axes: frozenset[str] | None = None
) -> Callable[[int, Sequence[Layout]], tuple[Layout, ...]]:
    """Of a parameter's or state's layouts those with the most pieces (over some axes, all when None), these along one
    dimension where that is possible.
    """

    def pieces(layout: Layout) -> list[int]:
        return [
            math.prod(d.axis.size for d in digits if axes is None or d.axis.name in axes)
            for digits in layout.dims
        ]

    def layouts(index: int, known: Sequence[Layout]) -> tuple[Layout, ...]:
        if graph.arguments[index].role not in ("parameter", "state"):
            return tuple(known)
        counts = {layout: pieces(layout) for layout in known}
        most = max(math.prod(count) for count in counts.values())
        found = tuple(layout for layout in known if math.prod(counts[layout]) == most)
        return tuple(layout for layout in found if sum(n > 1 for n in counts[layout]) <= 1) or found

    return layouts


def _weight_cuts(
    graph: Graph, mesh: Mesh, tensor: Sequence[int]
) -> tuple[dict[int, frozenset[str]], frozenset[str]]:
    """For every matrix product that reads a parameter, the factors whose cuts split the parameter in place; and the
    names of the parameters that some product can split.
    """
    size = math.prod(mesh.axes[axis][1] for axis in tensor)
    owner: dict[int, str] = {i: s.name for i, s in enumerate(graph.arguments) if s.role == "parameter"}
    factors: dict[int, frozenset[str]] = {}
    split: set[str] = set()
    for index, node in enumerate(graph.nodes):
        if node.kind.name in _PLAIN and node.operands[0] in owner:
            owner[node.results[0]] = owner[node.operands[0]]
        if node.kind.name not in COMPUTE:
            continue
        rule, found = node.kind.rule, set()
        for value, dims in zip(node.operands, rule.operands, strict=True):
            if value in owner:
                own = [f for dim in dims for f in dim if f in rule.factors and rule.sizes[f] % size == 0]
                found |= set(own)
                split |= {owner[value]} if own else set()
        factors[index] = frozenset(found)
    return factors, frozenset(split)
