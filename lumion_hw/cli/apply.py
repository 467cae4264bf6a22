"""``lumion apply``: change the circuits of a bench to those of a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.circuits import BenchTarget, target_options
from lumion_hw.cli.common.opening import served_connection, served_option
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, note
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.circuits import CircuitDifference, CircuitProof, WantedCircuits

_OUT_OF_TOLERANCE = 3


@click.command()
@target_options
@click.argument("circuits", metavar="CIRCUITS", type=click.Path(dir_okay=False))
@served_option
@click.option("--dry-run", is_flag=True, help="Show what would be changed, and change nothing.")
def apply(target: BenchTarget, circuits: str, served: str | None, dry_run: bool) -> None:
    """Change the circuits of BENCH to those of the file CIRCUITS: connect new ones, disconnect all others.

    Circuits that stay are not disturbed. New circuits are set up and verified by light before others are disconnected,
    unless they need the same modules or PUCs. All is changed or nothing; after an interruption run the command again.

    \b
    version: 1
    on_refusal: refuse_all     # or skip: leave out impossible circuits
    circuits:
      - sfp-a:sfp-b
      - {source: sfp-b, target: sfp-c, min_margin_db: 2.0, both: true}

    If `lumion serve --no-fabric` owns the bench, give its address with --served. The command then takes the lease.

    The exit code is 3 if a circuit cannot be set up.
    """
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import load_circuits
    from lumion_hw.circuits.state import change_document

    wanted = load_circuits(circuits, load(target.file))
    proofs: tuple[CircuitProof, ...] = ()
    if served is not None:
        change = _by_server(target, served, wanted, dry_run)
    elif dry_run:
        change = change_document(_planned_without_hardware(target, wanted), ())
    else:
        with target.opened("lumion apply") as service, RunProgress(None, quiet=True) as bars:
            difference = service.plan_difference(wanted.requests, progress=bars)
            proofs = service.apply(difference, wanted.on_refusal)
        change = change_document(difference, proofs)
    _print(change, wanted, dry_run, target.as_json)
    if change["refused"]:
        click.get_current_context().exit(_OUT_OF_TOLERANCE)


def _by_server(target: BenchTarget, address: str, wanted: WantedCircuits, dry_run: bool) -> Mapping[str, Any]:
    from lumion_hw.bench.bench import load

    local = {"--emulate": target.emulate, "--endpoints": target.endpoints, "--state": target.state}
    given = [name for name, value in (local | {"--record": target.record}).items() if value]
    if given:
        raise ConfigError(f"--served and {given[0]} cannot be combined", hint="Leave one of them out.")
    requests = [dataclasses.asdict(request) for request in wanted.requests]
    with served_connection(address, load(target.file), target.take_over) as connection:
        if dry_run:
            change: Mapping[str, Any] = connection.plan_difference(requests)
            return change
        try:
            change = connection.run_job("apply", {"circuits": requests, "on_refusal": wanted.on_refusal})
        except KeyboardInterrupt:
            note("the server finishes this change; run the command again with --dry-run to see the result")
            raise
        return change


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


def _print(change: Mapping[str, Any], wanted: WantedCircuits, dry_run: bool, as_json: bool) -> None:
    if as_json:
        echo_json({**change, "on_refusal": wanted.on_refusal, "dry_run": dry_run})
        return
    rows = list(_rows(change))
    if rows:
        echo_table("Planned" if dry_run else "Applied", ("circuit", "change", "hops", "loss dB", "margin dB"), rows)
    for refusal in change["refused"]:
        echo_text(f"refused {refusal['message']}")
    if change["refused"] and dry_run and wanted.on_refusal == "refuse_all":
        echo_text("nothing would be changed, because the file says on_refusal: refuse_all")
    elif not (change["connected"] or change["removed"]):
        echo_text("nothing to change")


def _rows(change: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    def connected(before_removal: bool) -> Iterator[tuple[Any, ...]]:
        for circuit in change["connected"]:
            if circuit["before_removal"] is before_removal:
                name = circuit["circuit"]
                margin_db = change["measured"].get(name, circuit)["margin_db"]
                rounded = None if margin_db is None else round(margin_db, 2)
                yield name, "connect", circuit["hops"], circuit["loss_db"], rounded

    for circuit in change["staying"]:
        yield circuit["circuit"], "stays", circuit["hops"], circuit["loss_db"], circuit["margin_db"]
    yield from connected(True)
    for name in change["removed"]:
        yield name, "disconnect", None, None, None
    yield from connected(False)
