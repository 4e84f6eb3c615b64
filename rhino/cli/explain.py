"""`rhino explain`: where a plan's time and memory go, an op's alternatives, what more memory or nodes would buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from rhino.cli.plan import seconds
from rhino.cli.progress import phase
from rhino.cli.run import write_json
from rhino.dialects.text import load_module
from rhino.dialects.verify import verify
from rhino.ir.errors import UsageError
from rhino.ir.quantity import size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rhino.planner.explain import Entry, MicroReport, OpReport, Report, WhatIf

#: Ops whose alternatives are shown when a pattern matches more.
_OPS = 6


@dataclass(frozen=True)
class ExplainOptions:
    """What `rhino explain` was asked for; see its help."""

    plan: str
    op: str | None = None
    top: int = 12
    what_if: bool = False
    json: str | None = None

    def check(self) -> None:
        """Raise UsageError for values that cannot mean anything."""
        if self.top < 1:
            raise UsageError(f"--top is {self.top}", remedy="give 1 or more")


def explain_plan(options: ExplainOptions) -> None:
    """Print what was asked for; write it as JSON too."""
    from rhino.planner.explain import alternatives, explain, what_if

    options.check()
    with phase("reading the plan"):
        module = load_module(options.plan)
        verify(module)
        report = explain(module)
    ops: list[OpReport] = []
    changes: list[WhatIf] = []
    if options.op is not None:
        with phase("measuring alternatives"):
            ops = alternatives(module, options.op)
    if options.what_if:
        with phase("planning again") as bar:
            changes = what_if(module, bar.tell)
    if options.json is not None:
        write_json(options.json, facts(module, report, ops, changes))
    show(report, ops, changes, options.top)


def facts(
    module: ModuleOp, report: Report, ops: Sequence[OpReport], changes: Sequence[WhatIf]
) -> dict[str, Any]:
    """Everything as plain values."""
    from rhino.planner.plan import constraints
    from rhino.planner.tally import describe

    return {
        "cost": dict(describe(report.cost)),
        "dominant": report.dominant,
        "seconds_by_kind": report.kinds,
        "micro_batches": None if report.micro is None else asdict(report.micro),
        "ops": [asdict(e) for e in report.ops],
        "collectives": [asdict(e) for e in report.collectives],
        "memory": [asdict(e) for e in report.memory],
        "alternatives": [asdict(op) for op in ops],
        "what_if": [
            {
                "change": c.change,
                "cost": None if c.cost is None else dict(describe(c.cost)),
                "reason": c.reason,
            }
            for c in changes
        ],
        "constraints": constraints(module),
    }


def show(report: Report, ops: Sequence[OpReport], changes: Sequence[WhatIf], top: int) -> None:
    """Print for people."""
    from rich.console import Console

    console = Console()
    cost = report.cost
    console.print(
        f"step {seconds(cost.step_time_s)} (compute {seconds(cost.compute_s)}, "
        f"communication {seconds(cost.comm_s)}), peak memory {size(cost.peak_memory_bytes)} per device"
    )
    console.print(report.dominant)
    if report.micro is not None:
        console.print(micro_batches(report.micro, cost.peak_memory_bytes), highlight=False)
    if not ops:
        console.print(_entries("Ops", report.ops, seconds, top))
        console.print(_entries("Collectives", report.collectives, seconds, top))
        console.print(_entries("Memory at the peak", report.memory, size, top))
    for op in ops[:_OPS]:
        _alternatives(console, op, cost.step_time_s, top)
    if len(ops) > _OPS:
        console.print(f"... {len(ops) - _OPS} more ops of that name (see --json)")
    for change in changes:
        if change.cost is None:
            console.print(f"{change.change}: {change.reason}")
            continue
        now, then = cost.step_time_s, change.cost.step_time_s
        console.print(
            f"{change.change}: step {seconds(then)}, {now / then if then else 1:.2f}x as fast; "
            f"peak memory {size(change.cost.peak_memory_bytes)}"
        )


def micro_batches(found: MicroReport, peak: float) -> str:
    """How many there are, and what they buy."""
    saved = found.whole_peak - peak
    buys = f"{size(saved)} less than" if saved > 0 else "no less than"
    return (
        f"{found.count} micro-batches: {size(peak)} per device are {buys} about {size(found.whole_peak)} for the batch "
        f"as one; at the peak one micro-batch holds {size(found.held)}, gradients being added up {size(found.sums)}"
    )


def _entries(title: str, entries: Sequence[Entry], unit: Any, top: int) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in ("what", "", "share", "count", "where"):
        table.add_column(column)
    for e in entries[:top]:
        table.add_row(e.what, unit(e.amount), f"{e.share:.1%}", str(e.count), e.where or "")
    rest = entries[top:]
    if rest:
        amount, share = sum(e.amount for e in rest), sum(e.share for e in rest)
        table.add_row(f"{len(rest)} more", unit(amount), f"{share:.1%}", str(sum(e.count for e in rest)), "")
    return table


def _alternatives(console: Console, op: OpReport, step: float, top: int) -> None:
    from rich.table import Table

    table = Table(title=f"{op.name}" + (f" at {op.where}" if op.where else ""), title_justify="left")
    for column in ("operands -> results", "step", "", "memory"):
        table.add_column(column)
    shown = op.alternatives[:top]
    shown += [a for a in op.alternatives[top:] if a.chosen]
    for a in shown:
        change = f"{a.more_s / step:+.2%}" if step else ""
        mark = "chosen" if a.chosen else change
        sign = "-" if a.more_bytes < 0 else "+"
        table.add_row(a.layouts, seconds(step + a.more_s), mark, sign + size(abs(a.more_bytes)))
    console.print(table)
    hidden = len(op.alternatives) - len(shown)
    if hidden:
        console.print(f"... {hidden} dearer ones (see --json)")
    if op.left_out:
        console.print(f"{op.left_out} placements that take longer by themselves were not measured")
