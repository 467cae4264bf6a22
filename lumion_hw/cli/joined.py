"""``lumion joined``: circuits over several meshes that are joined by fibres."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import Number
from lumion_hw.cli.common.opening import TAKE_OVER_HELP
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option, note
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.joined import JoinedMeshes, JoinedRequest

_INCOMPLETE = 3
_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(cls=NamedGroup)
def joined() -> None:
    """Connect modules on different benches, over meshes that are joined by fibres.

    JOINED is a file with the benches and the fibres between their meshes (docs/joined.md). A circuit is
    BENCH:MODULE:BENCH:MODULE, such as rack0:sfp-a:rack1:sfp-b.
    """


def _options(function: _Command) -> _Command:
    options: tuple[Callable[[_Command], _Command], ...] = (
        click.argument("file", metavar="JOINED", type=click.Path(dir_okay=False)),
        click.option("--state", metavar="DIR", help="Directory of the journal.  [default: one per user]"),
        click.option("--take-over", metavar="USER@HOST", help=TAKE_OVER_HELP),
        json_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@joined.command()
@click.argument("file", metavar="JOINED", type=click.Path(dir_okay=False))
def check(file: str) -> None:
    """Check JOINED and its bench files, without opening a bench. Served benches are not asked."""
    from lumion_hw.bench.bench import load
    from lumion_hw.joined import load_joined

    checked = load_joined(file)
    for name, entry in checked.benches.items():
        if entry.bench is not None:
            checked.check_bench(name, load(checked.folder / entry.bench))
    served = sum(entry.address is not None for entry in checked.benches.values())
    text = f"{file}: {len(checked.benches)} benches and {len(checked.fibres)} fibres"
    echo_text(f"{text}, without mistakes" + (f"; {served} benches are served and were not asked" if served else ""))


@joined.command()
@_options
@click.argument("circuits", nargs=-1, required=True, metavar="CIRCUIT...")
@click.option("--both", is_flag=True, help="Connect the opposite directions, too.")
@click.option(
    "--min-margin",
    "min_margin_db",
    type=Number("dB", 0.0, 60.0),
    default=0.0,
    help="Smallest margin at the receiver, in dB.",
)
@click.option(
    "--replace",
    "replaced",
    multiple=True,
    metavar="CIRCUIT",
    help="Active circuit that the new ones replace in the same change; can be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
def connect(
    file: str,
    state: str | None,
    take_over: str | None,
    as_json: bool,
    circuits: tuple[str, ...],
    both: bool,
    min_margin_db: float,
    replaced: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Connect CIRCUITs on all benches that they cross, proven up to the last receiver, or change nothing.

    A circuit that was lost, such as by the restart of a bench, is connected again in place of its remains. The exit
    code is 3 if a circuit is not possible or was not proven.
    """
    requests = _requests(circuits, both, min_margin_db)
    if both:
        replaced = tuple(request.name for request in _requests(replaced, both, 0.0))
    with _opened(file, state, take_over) as meshes:
        if dry_run:
            documents = [link.document() for link in meshes.plan(requests, replaced).links]
        else:
            documents = meshes.connect(requests, replaced)
    if as_json:
        echo_json({"circuits": documents, "dry_run": dry_run})
        return
    rows = [
        (
            document["circuit"],
            " > ".join(document["segments"]),
            round(sum(document["mesh_loss_db"]) + document["fibre_loss_db"], 2),
            document["received_dbm"],
            document["margin_db"],
        )
        for document in documents
    ]
    headers = ("circuit", "segments", "predicted loss dB", "received dBm", "margin dB")
    echo_table("Planned" if dry_run else "Connected", headers, rows)


@joined.command()
@_options
@click.argument("circuits", nargs=-1, metavar="[CIRCUIT...]")
@click.option("--all", "all_circuits", is_flag=True, help="Disconnect all circuits that cross these meshes.")
def disconnect(
    file: str,
    state: str | None,
    take_over: str | None,
    as_json: bool,
    circuits: tuple[str, ...],
    all_circuits: bool,
) -> None:
    """Disconnect CIRCUITs on all benches that they cross."""
    if bool(circuits) == all_circuits:
        raise ConfigError("expected either circuits or --all", hint="`lumion joined status JOINED` lists the circuits.")
    with _opened(file, state, take_over) as meshes:
        names = meshes.disconnect(None if all_circuits else circuits)
    if as_json:
        echo_json({"disconnected": names})
    else:
        echo_text(f"disconnected: {', '.join(names) or 'nothing'}")


@joined.command()
@_options
def status(file: str, state: str | None, take_over: str | None, as_json: bool) -> None:
    """Show all circuits that cross the meshes, as the benches report them.

    The exit code is 3 if a circuit is incomplete or has a warning, or if a change is unfinished.
    """
    with _opened(file, state, take_over) as meshes:
        links, unfinished = meshes.status(), meshes.unfinished
    if as_json:
        change = None if unfinished is None else unfinished.name
        echo_json({"circuits": [link.document() for link in links], "unfinished": change})
    else:
        rows = [(link.name, len(link.segments), link.margin_db, "; ".join(link.problems) or "-") for link in links]
        echo_table("Circuits", ("circuit", "segments", "margin dB", "problems"), rows)
    if unfinished is not None:
        note(f"the change {unfinished.name} is not finished: run `lumion joined recover {file}`")
    if unfinished is not None or any(link.problems for link in links):
        click.get_current_context().exit(_INCOMPLETE)


@joined.command()
@_options
def recover(file: str, state: str | None, take_over: str | None, as_json: bool) -> None:
    """Finish or undo a change that was interrupted, on all benches.

    Circuits that were proven before the interruption are kept. Otherwise all benches are set back.
    """
    with _opened(file, state, take_over) as meshes:
        outcome = meshes.recover()
    if as_json:
        echo_json({"outcome": outcome})
    else:
        echo_text(outcome)


def _requests(circuits: Sequence[str], both: bool, min_margin_db: float) -> list[JoinedRequest]:
    from lumion_hw.joined import JoinedRequest

    requests = [JoinedRequest.parse(name, min_margin_db) for name in circuits]
    return requests + [request.reverse() for request in requests if both]


@contextlib.contextmanager
def _opened(file: str, state: str | None, take_over: str | None) -> Iterator[JoinedMeshes]:
    from lumion_hw.joined import JoinedMeshes, load_joined

    with JoinedMeshes.open(load_joined(file), state, take_over) as meshes:
        yield meshes
