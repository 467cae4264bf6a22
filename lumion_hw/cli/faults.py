"""``lumion faults``: list and clear the latched faults of the mesh controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lumion_hw.cli.circuits import BenchTarget, target_options
from lumion_hw.cli.common.opening import open_bench
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, note
from lumion_hw.errors import BusyError

if TYPE_CHECKING:
    from lumion_hw.interfaces import Fault

_LATCHED = 5
_INSTEAD = {
    "lumion fabric run": "It checks for faults itself, and ends with an error if one stays latched. To clear a fault "
    "now: lumion fabric clear {file} NAME, with the same --endpoints or --state",
    "lumion serve": "Clear the fault there: on its page, or with its call BENCH:clear fault=NAME",
}
"""What to do while another program uses the bench."""


@click.command()
@target_options
@click.option("--clear", "name", metavar="NAME", help="Clear the latched faults with this name or ID.")
def faults(target: BenchTarget, name: str | None) -> None:
    """List and clear the latched faults of the mesh controller of BENCH. While a fault is latched, all heaters are off.

    Remove the cause first: while it is present, the controller does not clear the fault. Afterwards the heaters stay
    off until they are programmed. The exit code is 5 while a fault is latched. `lumion fault` is another command: it
    injects faults into an emulated bench.
    """
    from lumion_hw.bench.bench import load
    from lumion_hw.bench.controller_faults import clear_faults, latched_faults
    from lumion_hw.circuits import BenchLock, lock_owner

    only = [load(target.file).mesh_section.controller]
    program = "lumion faults"
    with target.directory() as directory:
        owner = lock_owner(directory)
        if owner is not None and target.take_over is None:
            raise BusyError(
                f"{owner.name} is using this bench with {owner.program!r}",
                hint=_INSTEAD.get(owner.program, "Wait for it to end, or take over with --take-over {owner}").format(
                    file=target.file, owner=owner.name
                ),
            )
        with (
            BenchLock(directory, program, take_over=target.take_over),
            open_bench(
                target.file, target.emulate, target.seed, target.endpoints, only, leave_on_s=target.leave_on_s
            ) as bench,
        ):
            ended_hold: tuple[Fault, ...] = getattr(bench.mesh.controller, "ended_hold", ())
            cleared = () if name is None else clear_faults(bench, name, program)
            latched = latched_faults(bench)
    if target.as_json:
        echo_json({"latched": list(latched), "cleared": list(cleared), "ended_hold": list(ended_hold)})
    else:
        for fault in ended_hold:
            note(f"{fault}: cleared when the bench was opened, because it only recorded that the host was silent")
        for fault in cleared:
            echo_text(f"cleared: {fault}")
        rows = [(f.fault_id, f.source, f.channel, "yes" if f.present else "no", f) for f in latched]
        echo_table("Latched faults", ("id", "name", "channel", "present", "measured"), rows)
        if not latched:
            echo_text("no fault is latched")
    if latched:
        click.get_current_context().exit(_LATCHED)
