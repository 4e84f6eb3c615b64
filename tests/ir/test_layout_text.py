"""The written form of layouts: worked examples, errors, and exhaustive round trips."""

from __future__ import annotations

import pytest
import simulate

from rhino.ir.errors import LayoutError, MeshError
from rhino.ir.layout import Digit, Layout
from rhino.ir.layout_text import AxisSpec, LayoutSpec, format_layout, parse_layout
from rhino.ir.mesh import AxisRef, Mesh

MESH = Mesh.parse("dp=2,tp=4")
DP = AxisRef("dp", 1, 2)
TP1, TP2 = AxisRef("tp", 1, 2), AxisRef("tp", 2, 2)


@pytest.mark.parametrize(
    ("text", "shape", "want"),
    [
        ("[]", (), Layout(())),
        ("[{}]", (8,), Layout(((),))),
        ('[{"dp"}]', (8,), Layout(((Digit(DP, 8),),))),
        ('[{"tp"}]', (8,), Layout(((Digit(TP1, 8), Digit(TP2, 4)),))),
        ('[{"tp":4}]', (8,), Layout(((Digit(TP1, 4), Digit(TP2, 2)),))),
        ('[{"dp", "tp"}]', (16,), Layout(((Digit(DP, 16), Digit(TP1, 8), Digit(TP2, 4)),))),
        ('[{"tp", "dp"}]', (16,), Layout(((Digit(TP1, 16), Digit(TP2, 8), Digit(DP, 4)),))),
        ('[{"dp":8, "tp"}]', (16,), Layout(((Digit(DP, 8), Digit(TP1, 4), Digit(TP2, 2)),))),
        (
            '[{"tp":(1)2:16}, {"tp":(2)2}]',
            (32, 6),
            Layout(((Digit(TP1, 16),), (Digit(TP2, 6),))),
        ),
        ('[{}] partial {"tp": sum}', (3,), Layout(((),), ((TP1, "sum"), (TP2, "sum")))),
        (
            '[{"tp":(1)2}] partial {"dp": max, "tp":(2)2: max}',
            (2,),
            Layout(((Digit(TP1, 2),),), ((DP, "max"), (TP2, "max"))),
        ),
    ],
)
def test_meaning(text: str, shape: tuple[int, ...], want: Layout) -> None:
    layout = parse_layout(text, shape, MESH)
    assert layout == want
    assert format_layout(layout, shape, MESH) == text  # all these are canonical


def test_what_is_written_survives() -> None:
    spec = LayoutSpec.parse(' [ {"dp":(1)2:8} ,{ "tp" }]partial{"pp":(1)2:sum} ')
    assert spec == LayoutSpec(
        ((AxisSpec("dp", (1, 2), 8),), (AxisSpec("tp"),)), ((AxisSpec("pp", (1, 2)), "sum"),)
    )
    assert str(spec) == '[{"dp":(1)2:8}, {"tp"}] partial {"pp":(1)2: sum}'
    assert LayoutSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('[{"dp":8}, {}]', '[{"dp"}, {}]'),
        ('[{"tp":(1)2, "tp":(2)2}, {}]', '[{"tp"}, {}]'),
        ('[{"tp":(1)4}, {}]', '[{"tp"}, {}]'),
        (
            '[{}, {}] partial {"tp":(2)2: sum, "dp": sum, "tp":(1)2: sum}',
            '[{}, {}] partial {"dp": sum, "tp": sum}',
        ),
        ('[{"one"}, {"one":(1)1:3}]', "[{}, {}]"),
    ],
)
def test_canonical(text: str, canonical: str) -> None:
    mesh = Mesh.parse("one=1,dp=2,tp=4") if "one" in text else MESH
    shape = (8, 3)
    assert format_layout(parse_layout(text, shape, mesh), shape, mesh) == canonical


@pytest.mark.parametrize("mesh", ["x=2", "x=3", "x=4", "x=2,y=2", "x=2,y=3", "x=6", "x=8", "x=2,y=4"])
@pytest.mark.parametrize("shape", [(8,), (12,), (4, 6), (2, 4, 2)], ids=str)
def test_round_trip(mesh: str, shape: tuple[int, ...]) -> None:
    m = Mesh.parse(mesh)
    seen = set()
    for layout in simulate.layouts(shape, m):
        text = format_layout(layout, shape, m)
        assert parse_layout(text, shape, m) == layout
        assert str(LayoutSpec.parse(text)) == text
        seen.add(text)
    assert len(seen) == sum(1 for _ in simulate.layouts(shape, m))  # equal text only for equal layouts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it ends where '[' should follow at column 1"),
        ("[{", "it ends where an axis name in quotes should follow"),
        ("[{dp}]", "an axis name in quotes should stand at column 3"),
        ('[{"dp"} {}]', "',' should stand at column 9"),
        ('[{"dp":}]', "a number should stand at column 8"),
        ('[{"dp":(1)}]', "a number should stand at column 11"),
        ('[{"dp"}] {', "a word should stand at column 10"),
        ('[{"dp"}] parted {"tp": sum}', "'partial' should stand at column 10"),
        ("[{}] partial {}", "an axis name in quotes should stand at column 15"),
        ('[{}] partial {"tp": avg}', "one of sum, max, min, prod, and, or should stand at column 21"),
        ('[{"dp"}] partial {"tp": sum} x', "nothing more should stand at column 30"),
        ("[{}]; [{}]", "this is no part of a layout at column 5"),
        ("[,]", "'{' should stand at column 2"),
    ],
)
def test_unreadable(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as error:
        LayoutSpec.parse(text)
    assert message in str(error.value) and "remedy" in str(error.value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ('[{"pp"}, {}]', MeshError, "no axis 'pp'"),
        ('[{"tp":(3)2}, {}]', MeshError, "is no part of axis 'tp' of size 4"),
        ('[{"dp"}]', LayoutError, "has 1 dimensions, the tensor of shape [8, 6] 2"),
        ('[{}, {"tp"}]', LayoutError, 'dim 1 of extent 6: "tp" of size 4 does not divide the 6'),
        ('[{"dp":3}, {}]', LayoutError, 'dim 0 of extent 8: "dp":3 of size 2 does not divide its period 3'),
        ('[{"dp":6}, {}]', LayoutError, 'period 6 of "dp" does not divide the 8'),
        ('[{"dp":0}, {}]', LayoutError, "is not positive"),
        ('[{"dp":2, "tp":4}, {}]', LayoutError, 'period 4 of "tp" does not divide the 1'),
        ('[{"dp"}, {"dp"}]', LayoutError, "used twice"),
        ('[{"tp"}, {"tp":(2)2}]', LayoutError, "used twice"),
        ('[{}, {}] partial {"dp": sum, "tp": max}', LayoutError, "two different kinds"),
    ],
)
def test_misfits(text: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as error:
        parse_layout(text, (8, 6), MESH)
    assert message in str(error.value) and "remedy" in str(error.value)


def test_cuts_of_a_mixed_axis() -> None:
    """Size 6 is cut as 2 x 3: (1)3 would straddle the cut."""
    mesh = Mesh.parse("x=6")
    assert parse_layout('[{"x":(2)3}]', (6,), mesh) == Layout(((Digit(AxisRef("x", 2, 3), 6),),))
    with pytest.raises(MeshError, match="does not fall on a cut"):
        parse_layout('[{"x":(1)3}]', (6,), mesh)
