"""The checker checked: faults planted in correct local programs, each of which it must find and name.

A fault is *caught* when a value of the program is not what the placed program computes for it. The report must name an
op whose result the fault can be the first to spoil: one of the ops that were changed, or the first op after them whose
result stands for a value of the placed program (collectives come in chains of which only the last one does). Mutants
that do not verify count as caught, too; those that compute the same for all arguments are told apart by
`equivalent.reason`, from the program's structure. Whatever is neither fails the test.

``pytest tests/check/test_planted_faults.py -m long -s`` plants 50 faults of every kind and prints a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import equivalent
import pytest
from fault_bases import MODELS, Base, model_base, random_base
from mutants import PLANT
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from rhino.check.choices import Seeded
from rhino.check.names import tag_of
from rhino.dialects import signature
from rhino.dialects.text import print_module
from rhino.dialects.verify import verify
from rhino.ir.errors import ProgramError

Mutant = tuple[Base, ModuleOp, list[Operation]]

#: Faults of every kind in the long run.
SITES = 50
#: The models of the quick run.
FEW = ("mlp, megatron", "experts", "dropout", "padded 7")
#: Kinds that only some programs can have.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "padding let in": tuple(name for name in MODELS if name.startswith("padded")),
    "a tied weight updated once": ("vocabulary", "dropout", "dropout, megatron", "padded 13"),
    "random numbers by local index": ("dropout", "dropout, megatron"),
    "an update lost": tuple(MODELS),
}


def plant(kind: str, base: Base, choices: Seeded, taken: set[tuple[str, str]]) -> Mutant | None:
    """A copy of the program with a fault at a random site that was not taken before, if there is one."""
    for _ in range(20):
        mutant = base.local.clone()
        ops = choices.order(signature.main_of(mutant).body.block.ops)
        # Where a fault cannot be planted, the program stays as it was.
        altered = next(
            (found for op in ops if (found := PLANT[kind](op, base.mesh, choices)) is not None), None
        )
        if altered is None:
            return None
        key = base.name, print_module(mutant)
        if key not in taken:
            taken.add(key)
            return base, mutant, list(altered)
    return None


def faults(kind: str, bases: Iterator[Base], count: int) -> Iterator[Mutant]:
    """So many different programs with a fault of one kind."""
    taken: set[tuple[str, str]] = set()
    spent: set[str] = set()
    for number, base in enumerate(bases):
        if base.name in spent:
            continue
        found = plant(kind, base, Seeded(f"{kind} {number}"), taken)
        if found is None:
            spent.add(base.name)
            continue
        yield found
        count -= 1
        if count == 0:
            return


def neighbourhood(altered: Sequence[Operation]) -> set[Operation]:
    """The ops that a report may name: those altered, and through values without names the first that have one."""
    return equivalent.downstream(altered, lambda op: op in altered or not any(tag_of(r) for r in op.results))


def judge(kind: str, mutant: Mutant) -> str:
    """``caught``, ``refused`` (it does not verify), or why the fault changes nothing; fails if it is missed."""
    base, module, altered = mutant
    try:
        verify(module)
    except ProgramError:
        return "refused"
    finding = base.check(module)
    if finding is None:
        why = equivalent.reason(kind, base.local, module, altered, neighbourhood(altered), base.mesh)
        assert why is not None, f"{kind} in {base.name} is missed: {altered}"
        return why
    near = neighbourhood(altered)
    message = f"{kind} in {base.name}: {finding.text()}\nnames another op than {[str(op) for op in altered]}"
    assert finding.suspects and finding.suspects[0] in near, message
    assert finding.op == finding.suspects[0].name
    return "caught"


def bases(kind: str, models: Sequence[str], rounds: int, seeds: int) -> Iterator[Base]:
    """Models that can have a fault of this kind, some times over, then random programs."""
    for _ in range(rounds):
        yield from (model_base(name) for name in ONLY_IN.get(kind, tuple(MODELS)) if name in models)
    if kind not in ("padding let in", "an update lost"):
        yield from (random_base(seed) for seed in range(seeds))


def row(kind: str, outcomes: Counter[str]) -> str:
    """A line of the table: planted, caught, equal by an argument."""
    equal = {why: n for why, n in outcomes.items() if why not in ("caught", "refused")}
    caught = outcomes["caught"] + outcomes["refused"]
    why = "; ".join(f"{n} x {why}" for why, n in equal.items())
    return f"{kind:32} {outcomes.total():4} {caught:4} {sum(equal.values()):4}  {why}"


@pytest.mark.parametrize("kind", PLANT)
def test_faults_are_caught_and_named(kind: str) -> None:
    found = faults(kind, bases(kind, FEW, 2 if kind not in ONLY_IN else 4, 24), 12)
    outcomes = Counter(judge(kind, mutant) for mutant in found)
    print(row(kind, outcomes))
    assert outcomes["caught"] + outcomes["refused"] >= 2


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", PLANT)
def test_many_faults_are_caught_and_named(kind: str) -> None:
    """At `SITES` different sites for every kind."""
    outcomes = Counter(
        judge(kind, mutant) for mutant in faults(kind, bases(kind, tuple(MODELS), 40, 800), SITES)
    )
    print(row(kind, outcomes))
    assert outcomes.total() == SITES
