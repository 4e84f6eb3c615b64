"""Functions that need a loop: at their borders, and for orders and arguments of every piece."""

from __future__ import annotations

import pytest
import torch
from op_check import Case, case, check, values

from rhino.frontend.torch_ops.recurrences import FAMILIES

INF = float("inf")
ORDERS = values(0.0, 1.0, 2.0, 3.0, 9.0, 20.0, -1.0, 2.7, 5.0)
ARGUMENTS = values(0.3, -0.9, 1.0, -1.0, 0.99, -0.2, 0.5, 1.7, -2.2)


def polynomial(name: str) -> Case:
    function = getattr(torch.special, name)
    return case(
        name,
        lambda x, n: [function(x.detach(), n), function(x.detach(), 4)],
        ARGUMENTS,
        ORDERS,
        gradient=False,
    )


GAMMA = (values(0.5, 3.0, 3.0, 10.0, 40.0, 0.1, 25.0), values(0.2, 1.0, 9.0, 12.0, 30.0, 0.9, 80.0))
#: Where the derivative is 0 for Rhino and NaN for torch.
BORDERS = (values(2.0, 0.0, 0.0, -1.0, INF, 2.0, INF), values(0.0, 1.0, 0.0, 1.0, 1.0, INF, INF))
CASES = (
    *(polynomial(name) for name in FAMILIES),
    case("igamma", lambda a, x: torch.special.gammainc(a.detach(), x), *GAMMA),
    case("igammac", lambda a, x: torch.special.gammaincc(a.detach(), x), *GAMMA),
    case(
        "gamma_borders",
        lambda a, x: [f(a.detach(), x.detach()) for f in (torch.special.gammainc, torch.special.gammaincc)],
        *BORDERS,
        gradient=False,
    ),
    case(
        "hermite_limit",
        lambda x: torch.special.hermite_polynomial_h(x.detach(), 600),
        values(0.1, 0.2),
        gradient=False,
    ),
    case(
        "nonzero_of_nothing", lambda x: torch.nonzero(x.detach().new_zeros(0, 3)), values(1.0), gradient=False
    ),
)


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_equals_torch(c: Case) -> None:
    check(CASES, c, torch.float64)
