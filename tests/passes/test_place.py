"""place: reshards where layouts differ, shared, and where they stand."""

import pytest

from rhino.dialects import signature
from rhino.dialects.dist import ReshardOp
from rhino.dialects.text import parse_module
from rhino.dialects.verify import verify
from rhino.ir.errors import LayoutError, MeshError, ProgramError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.rule import Placement
from rhino.passes.place import choose_mesh, place

MESH = Mesh.parse("a=2,b=2")
A, B = MESH.axis("a"), MESH.axis("b")
WHOLE = Layout.replicated(1)
ON_A, ON_B = Layout.block((8,), [(0, A)]), Layout.block((8,), [(0, B)])
TEXT = """
func.func @main(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = hlo.exp %x : tensor<8xf32>
  %1 = hlo.negate %0 : tensor<8xf32>
  %2 = hlo.abs %0 : tensor<8xf32>
  %3 = hlo.sign %0 : tensor<8xf32>
  func.return %1, %2 : tensor<8xf32>, tensor<8xf32>
}
"""


def placed(layouts, arguments, results):
    """The module with elementwise ops in these layouts."""
    module = parse_module(TEXT)
    ops = [op for op in signature.main_of(module).body.block.ops if op.results]
    placements = {op: Placement((layout,), (layout,)) for op, layout in zip(ops, layouts, strict=True)}
    place(module, MESH, placements, arguments, results)
    return module


def names(module):
    return [op.name.split(".")[1] for op in signature.main_of(module).body.block.ops]


def test_one_reshard_for_all_who_want_the_same():
    module = placed([ON_A, ON_B, ON_B, WHOLE], [ON_A], [ON_B, ON_A])
    verify(module)
    # The way to ON_B keeps the size: right before its first user. Likewise the whole value for sign.
    assert names(module) == ["exp", "reshard", "negate", "abs", "reshard", "sign", "reshard", "return"]
    reshards = [op for op in module.walk() if isinstance(op, ReshardOp)]
    assert [len(list(r.result.uses)) for r in reshards] == [2, 1, 1]


def test_a_reshard_that_shrinks_stands_at_the_definition():
    module = placed([WHOLE, WHOLE, ON_A, WHOLE], [WHOLE], [WHOLE, WHOLE])
    verify(module)
    assert names(module) == ["exp", "reshard", "negate", "abs", "sign", "reshard", "return"]
    module = placed([ON_A, ON_A, ON_A, ON_A], [WHOLE], [ON_A, ON_A])
    assert names(module)[:2] == ["reshard", "exp"]


def test_reshards_keep_the_place_of_their_first_user():
    module = placed([ON_A, ON_B, ON_B, ON_A], [ON_A], [ON_B, ON_B])
    reshard = next(op for op in module.walk() if isinstance(op, ReshardOp))
    assert str(reshard.location) == str(reshard.next_op.location)


def test_errors_name_op_operand_and_cure():
    with pytest.raises(
        LayoutError, match=r":4:3: hlo.negate: operand 0: axis 'a': .* cannot become partial sum"
    ):
        placed([ON_B, Layout.make([[]], [(A, "sum")]), WHOLE, WHOLE], [ON_B], [WHOLE, WHOLE])
    with pytest.raises(LayoutError, match=r"hlo.exp: result 0: dim 0: .* period 3"):
        placed([Layout.make([[(A, 3)]]), WHOLE, WHOLE, WHOLE], [ON_B], [WHOLE, WHOLE])
    with pytest.raises(ProgramError, match=r"has 1 arguments, but 0 layouts"):
        placed([WHOLE] * 4, [], [WHOLE, WHOLE])
    with pytest.raises(ProgramError, match=r"has 2 results, but 1 layouts"):
        placed([WHOLE] * 4, [WHOLE], [WHOLE])
    module = parse_module(TEXT)
    with pytest.raises(ProgramError, match=r"hlo.exp: no placement was given"):
        place(module, MESH, {}, [WHOLE], [WHOLE, WHOLE])


def test_the_mesh_of_an_option_and_of_the_module():
    module = placed([WHOLE] * 4, [WHOLE], [WHOLE, WHOLE])
    assert choose_mesh(module, None) == choose_mesh(module, "a=2,b=2") == MESH
    with pytest.raises(MeshError, match=r"written for mesh a=2,b=2, not for x=4"):
        choose_mesh(module, "4")
    assert choose_mesh(parse_module(TEXT), "2x2") == Mesh.parse("x=2,y=2")
    with pytest.raises(MeshError, match=r"no mesh was given"):
        choose_mesh(parse_module(TEXT), None)
