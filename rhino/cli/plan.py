"""`rhino plan`: search, and show what was decided and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp, StringAttr

from rhino.cli.planning import Request, make_plan
from rhino.cli.progress import phase
from rhino.cli.run import write_json
from rhino.cli.source import forward_of, load, step_of
from rhino.dialects.text import print_module
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.quantity import size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rhino.planner import Plan

#: Attribute of a plan's text: what was checked of it.
CHECKED = "rhino.checked"

#: Rows of a table on the terminal; the JSON file has all of them.
_ROWS = 24


@dataclass(frozen=True)
class PlanOptions:
    """What `rhino plan` was asked for; see its help."""

    program: str
    request: Request
    output: str | None = None
    json: str | None = None
    check: bool = True


def plan_program(options: PlanOptions) -> None:
    """Plan the program's training step, check the plan; print tables, write the files that were asked for.

    Raises ProgramError when the partitioned program computes something else; nothing is written then but what differs.
    """
    options.request.resolve()
    with phase("loading the program"):
        source = load(options.program)
    with phase("capturing"):
        forward = forward_of(source)
    with phase("differentiating"):
        step = step_of(forward, source.optimizer)
    with phase("planning") as bar:
        plan = make_plan(step, options.request, bar.tell)
    facts = plan.to_json()
    if options.check:
        facts["check"] = _check(step, plan)
    if options.output is not None:
        text = print_module(plan.module, debug=True)
        try:
            Path(options.output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write '{options.output}': {error.strerror}") from error
    if options.json is not None:
        write_json(options.json, facts)
    show(facts)
    if options.output is not None:
        print(f"plan written to {options.output}")


def _check(step: ModuleOp, plan: Plan) -> dict[str, Any]:
    """Check a plan and note in its module what was checked; returns what --json writes of it."""
    from rhino.check.planned import check_planned
    from rhino.check.values import TOLERANCE
    from rhino.cli.by_pass import FOLDER, write_wrong

    with phase("checking the plan") as bar:
        found = check_planned(step, plan.module, plan.padding, plan.micro_batches, tell=bar.tell)
    if found.verdict == "different":
        files = ""
        if found.wrong is not None:
            with phase("minimising"):
                files = (
                    f"; written: {', '.join(write_wrong(found.wrong, TOLERANCE['float64'], FOLDER)['files'])}"
                )
        raise ProgramError(
            f"the plan does not compute what the program does: {found.reason}{files}",
            remedy="report this; --no-check writes the plan all the same",
        )
    plan.module.attributes[CHECKED] = StringAttr(found.text())
    return {**found.to_json(), "text": found.text()}


def show(facts: Mapping[str, Any]) -> None:
    """Print a plan's facts (those of --json) for people."""
    from rich.console import Console

    console = Console()
    cost = facts["cost"]
    console.print(f"[bold]{facts['devices']} devices, mesh {facts['mesh']}[/]")
    console.print(
        f"step {seconds(cost['step_time_s'])} (compute {seconds(cost['compute_s'])}, "
        f"communication {seconds(cost['comm_s'])}), peak memory {size(cost['peak_memory_bytes'])} per device"
    )
    console.print(
        f"lower bound {seconds(facts['lower_bound_s'])}, gap {facts['gap']:.2%}, "
        f"found in {facts['search_s']:.1f} s"
    )
    if "check" in facts:
        _show_check(console, facts["check"])
    if facts["micro_batches"] > 1 or len(facts["micro_batches_tried"]) > 1:
        console.print(micro_batches(facts), highlight=False)
    if facts["padding"]:
        grown = ", ".join(pair.replace(":", " to ") for pair in facts["padding"].split(","))
        console.print(f"padded so that the mesh divides them: {grown}")
    console.print(_parameters(facts))
    console.print(_collectives(facts))
    if facts["templates"]:
        console.print(_templates(facts))
        for name, why in facts["notes"].items():
            console.print(f"no {name}: {why}", highlight=False, markup=False)


def micro_batches(facts: Mapping[str, Any]) -> str:
    """How many micro-batches there are, and why."""
    count = facts["micro_batches"]
    tried = facts["micro_batches_tried"]
    text = f"{count} micro-batches" if count > 1 else "1 micro-batch"
    if len(tried) < 2:
        return text

    def one(each: Mapping[str, Any]) -> str:
        fits = each["step_time_s"] is not None
        how = f", step {seconds(each['step_time_s'])}" if fits else ", does not fit"
        return f"{size(each['peak_memory_bytes'])} with {each['count']}{how}"

    return f"{text}; memory per device: {'; '.join(map(one, tried))}"


def _show_check(console: Console, check: Mapping[str, Any]) -> None:
    if check["verdict"] == "unchecked":
        console.print(f"[yellow]{check['text']}[/]", highlight=False)
    else:
        console.print(f"checked: {check['text']}, {check['seconds']:.1f} s")
    for note in check["notes"]:
        console.print(f"note: {note}", highlight=False, markup=False)


def _parameters(facts: Mapping[str, Any]) -> Table:
    rows = [(p["name"], "x".join(map(str, p["shape"])), str(p["layout"])) for p in facts["parameters"]]
    return _table("Parameters", ["name", "shape", "layout"], rows)


def _collectives(facts: Mapping[str, Any]) -> Table:
    rows = [
        (str(c["kind"]), str(c["axis"]), str(c["count"]), size(c["bytes"]))
        for c in sorted(facts["collectives"], key=lambda c: -c["bytes"])
    ]
    return _table("Collectives in a step", ["kind", "axis", "count", "bytes sent per device"], rows)


def _templates(facts: Mapping[str, Any]) -> Table:
    own = facts["cost"]["step_time_s"]
    rows = [
        (
            name,
            "none" if time is None else seconds(time),
            "" if not time or not own else f"{time / own:.2f}x",
        )
        for name, time in facts["templates"].items()
    ]
    return _table("Expert templates", ["name", "step", "against this plan"], rows)


def _table(title: str, columns: list[str], rows: Sequence[tuple[str, ...]]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows[:_ROWS]:
        table.add_row(*row)
    if len(rows) > _ROWS:
        table.add_row(f"... {len(rows) - _ROWS} more (see --json)", *[""] * (len(columns) - 1))
    return table


def seconds(value: float) -> str:
    """A duration in the unit that suits it."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} us"
