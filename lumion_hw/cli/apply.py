"""``lumion apply``: change the circuits of a bench to those of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.circuits import BenchTarget, target_options
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text
from lumion_hw.cli.common.progress import RunProgress

if TYPE_CHECKING:
    from lumion_hw.circuits import CircuitDifference, CircuitProof, PlannedCircuit, WantedCircuits

_OUT_OF_TOLERANCE = 3


@click.command()
@target_options
@click.argument("circuits", metavar="CIRCUITS", type=click.Path(dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Show what would be changed, without using hardware.")
def apply(target: BenchTarget, circuits: str, dry_run: bool) -> None:
    """Change the circuits of BENCH to those of the file CIRCUITS: connect new ones, disconnect all others.

    Circuits that stay are not disturbed. New circuits are set up and verified by light before others are disconnected,
    unless they need the same modules or PUCs. All is changed or nothing; after an interruption run the command again.

    \b
    version: 1
    on_refusal: refuse_all     # or skip: leave out impossible circuits
    circuits:
      - sfp-a:sfp-b
      - {source: sfp-b, target: sfp-c, min_margin_db: 2.0, both: true}

    The exit code is 3 if a circuit cannot be set up.
    """
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import load_circuits

    wanted = load_circuits(circuits, load(target.file))
    proofs: tuple[CircuitProof, ...] = ()
    if dry_run:
        difference = _planned_without_hardware(target, wanted)
    else:
        with target.opened("lumion apply") as service, RunProgress(None, quiet=True) as bars:
            difference = service.plan_difference(wanted.requests, progress=bars)
            proofs = service.apply(difference, wanted.on_refusal)
    _print(difference, wanted, proofs, dry_run, target.as_json)
    if difference.refusals:
        click.get_current_context().exit(_OUT_OF_TOLERANCE)


def _planned_without_hardware(target: BenchTarget, wanted: WantedCircuits) -> CircuitDifference:
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import plan_difference, read_state
    from lumion_hw.circuits.state import restored_plan
    from lumion_hw.storage import load_record

    model = load(target.file)
    with target.directory() as directory:
        record, state = load_record(target.record_of(directory)), read_state(directory)[0]
    active = restored_plan(model, record, state)
    with RunProgress(None, quiet=True) as bars:
        return plan_difference(model, record, wanted.requests, () if active is None else active.circuits, bars)


def _print(
    difference: CircuitDifference,
    wanted: WantedCircuits,
    proofs: tuple[CircuitProof, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    if as_json:
        echo_json({**difference.document(), "on_refusal": wanted.on_refusal, "dry_run": dry_run})
        return
    margins_db = {proof.circuit.request.name: proof.margin_db for proof in proofs}
    rows = list(_rows(difference, margins_db))
    if rows:
        echo_table("Planned" if dry_run else "Applied", ("circuit", "change", "hops", "loss dB", "margin dB"), rows)
    for refusal in difference.refusals:
        echo_text(f"refused {refusal}")
    if difference.refusals and dry_run and wanted.on_refusal == "refuse_all":
        echo_text("nothing would be changed, because the file says on_refusal: refuse_all")
    elif difference.changes_nothing:
        echo_text("nothing to change")


def _rows(difference: CircuitDifference, margins_db: dict[str, float | None]) -> Iterator[tuple[Any, ...]]:
    def connected(circuits: Sequence[PlannedCircuit]) -> Iterator[tuple[Any, ...]]:
        for circuit in circuits:
            margin_db = margins_db.get(circuit.request.name, circuit.budget.margin_db)
            numbers = (
                None if number is None else round(number, 2) for number in (circuit.budget.mesh_loss_db, margin_db)
            )
            yield circuit.request.name, "connect", circuit.hops, *numbers

    for request in difference.kept:
        yield request.name, "stays", None, None, None
    yield from connected(difference.first)
    for request in difference.removed:
        yield request.name, "disconnect", None, None, None
    yield from connected(difference.last)
