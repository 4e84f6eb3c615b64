"""Candidates: legal without exception, complete on small ops, and carrying the digits their neighbours have."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import cnn, mlp, program, transformer

from rhino.dialects.builder import Builder
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.planner.candidates import (
    Cut,
    Through,
    argument_layouts,
    candidates,
    choices_for,
    discover,
    marks_for,
)
from rhino.planner.cost import shards_of
from rhino.planner.graph import read
from rhino.planner.regions import regions

STEPS = {
    "mlp": mlp(8, [8, 16, 8], AdamW()),
    "cnn": cnn(8, [4, 8], 8),
    "transformer": transformer(1, 8, 12, 32, 4, 64, AdamW()),
}


def test_every_candidate_is_one_that_the_op_admits() -> None:
    for step in STEPS.values():
        graph = read(step)
        options = discover(graph)
        for mesh in (Mesh.parse("4"), Mesh.parse("2x4"), Mesh.parse("2x2x2")):
            axes = [mesh.axis(name) for name, _ in mesh.axes]
            for node, choices in zip(graph.nodes, options.nodes, strict=True):
                if node.free:
                    continue
                rule = node.kind.rule
                found = candidates(rule, [choices_for(choices, a) for a in axes], axes)
                assert any(all(o.is_replicated for o in c.placement.operands) for c in found)
                assert len({c.placement for c in found}) == len(found)
                for c in found:
                    assert rule.admits(c.placement.operands, c.placement.results) is None, (node.kind.name, c)
                    assert c.shards == shards_of(c.placement)


def test_a_matrix_product_has_all_its_block_splits() -> None:
    graph = read(mlp(8, [8, 16]))
    node = next(n for n in graph.nodes if n.kind.name == "hlo.dot_general")
    axis = Mesh.parse("2").axis("x")
    choices = discover(graph).nodes[graph.nodes.index(node)]
    found = candidates(node.kind.rule, [choices_for(choices, axis)], [axis])
    results = {(*map(len, c.placement.results[0].dims), len(c.placement.results[0].partial)) for c in found}
    assert results == {(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)}, "whole, rows, columns, contracted"


def test_heads_reach_the_fused_projection_as_a_strided_digit() -> None:
    """[B, T, 3 * H * d] is sliced and reshaped to heads: the projection's weight can be split by heads."""
    heads, width = 4, 32
    graph = read(STEPS["transformer"])
    options = discover(graph)
    weight = graph.argument_of("h.0.qkv")
    assert weight is not None
    assert (1, width) in options.arguments[weight], "period of one part of three, cut by heads"
    axis = Mesh.parse(str(heads)).axis("x")
    layouts = argument_layouts((width, 3 * width), [marks_for(options.arguments[weight], axis)], [axis])
    assert any(layout.dims[1] and layout.dims[1][0].period == width for layout in layouts)
    dot = next(n for n in graph.nodes if weight in n.operands)
    choices = options.nodes[graph.nodes.index(dot)]
    assert {c.period for c in choices if isinstance(c, Cut)} >= {3 * width, width}


def test_tokens_reach_merged_batch_and_sequence() -> None:
    graph = read(STEPS["transformer"])
    options = discover(graph)
    merged = [
        n
        for n in graph.nodes
        if n.kind.name == "hlo.dot_general" and graph.values[n.results[0]].shape == (8 * 12, 32)
    ]
    assert merged and all((0, 12) in options.marks[n.results[0]] for n in merged)


def test_partials_pass_where_something_made_them_and_scaling_keeps_them() -> None:
    def body(b: Builder, x, y, w, v):  # type: ignore[no-untyped-def]
        one, two = b.matmul(x, w), b.matmul(y, v)
        total = b.mul(b.add(one, two), b.full_like(one, 0.5))
        return [b.reduce(b.exp(total), [0, 1], "sum")]

    arguments = [("x", "input", (8, 8), "f32"), ("y", "input", (8, 8), "f32"),
                 ("w", "parameter", (8, 8), "f32"), ("v", "parameter", (8, 8), "f32")]  # fmt: skip
    graph = read(program(arguments, body))
    options = discover(graph)
    by_name = {n.kind.name: options.nodes[i] for i, n in enumerate(graph.nodes)}
    assert Through("sum", (0, 1)) in by_name["hlo.add"]
    assert Through("sum", (0,)) in by_name["hlo.mul"]
    assert not any(isinstance(c, Through) for c in by_name["hlo.exp"])


def test_two_axes_nest_in_mesh_order() -> None:
    mesh = Mesh.parse("x=2,y=4")
    axes = [mesh.axis("x"), mesh.axis("y")]
    layouts = argument_layouts((16, 8), [marks_for([(0, 16), (1, 8)], a) for a in axes], axes)
    assert len(layouts) == 3 * 3
    both = next(layout for layout in layouts if len(layout.dims[0]) == 3)
    assert [d.period for d in both.dims[0]] == [16, 8, 4] and both.dims[0][0].axis.name == "x"
    assert all(layout.error((16, 8)) is None for layout in layouts)


def test_regions_are_elementwise_ops_of_one_shape_with_one_set_of_choices() -> None:
    graph = read(STEPS["transformer"])
    options = discover(graph)
    groups = regions(graph, options)
    members: dict[int, list[int]] = {}
    for i, leader in enumerate(groups):
        members.setdefault(leader, []).append(i)
    assert max(map(len, members.values())) > 5, "an optimizer's update is one region"
    for group in members.values():
        for a, b in itertools.pairwise(group):
            assert options.nodes[a] == options.nodes[b]
            first, second = (graph.values[graph.nodes[i].results[0]].shape for i in (a, b))
            assert first == second


def test_a_shared_constant_ties_nobody_together() -> None:
    """Both updates read one 0.5 of the weights' shape, and nothing else in common."""
    graph = read(mlp(4, [8, 8, 8]))
    groups = regions(graph, discover(graph))
    subs = [i for i, n in enumerate(graph.nodes) if n.kind.name == "hlo.sub"]
    assert len(subs) == 2 and groups[subs[0]] != groups[subs[1]]
