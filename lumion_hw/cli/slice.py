"""``lumion slice``: place requests for accelerators on a torus and on a circuit fabric. Uses no bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import MANY, SEED, Number
from lumion_hw.cli.common.output import echo_json, echo_table, json_option, say
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.cli.plan import COUNTED_BY, MIX

if TYPE_CHECKING:
    from lumion_hw.planning.slices import Rack

_TOPOLOGIES = ("ring", "torus", "full")
_TOPOLOGY = click.option(
    "--topology",
    type=click.Choice(_TOPOLOGIES),
    default="ring",
    show_default=True,
    help="Links between the accelerators of a slice.",
)
_TORUS = click.option(
    "--torus", default="4,4,4", show_default=True, help="Lengths of the torus to compare with, such as 4,4,4."
)
_SERVER = click.option(
    "--server",
    "per_server",
    type=click.IntRange(1, MANY),
    default=4,
    show_default=True,
    help="Accelerators per server.",
)
_PORTS = click.option(
    "--ports", type=click.IntRange(1, 1024), default=6, show_default=True, help="Ports per accelerator."
)


@click.group("slice", cls=NamedGroup)
def slice_() -> None:
    """Place slices of a rack: neighbours on a torus, any accelerators on a circuit fabric."""


def _racks(torus: str, per_server: int, ports: int) -> dict[str, Rack]:
    from lumion_hw.planning import FabricRack, TorusRack

    try:
        one, two, three = (int(part) for part in torus.split(","))
    except ValueError:
        raise click.UsageError(f"--torus: {torus!r} is not three lengths. Write them as 4,4,4.") from None
    rack = TorusRack((one, two, three))
    return {"torus": rack, "fabric": FabricRack(rack.size, per_server, ports)}


@slice_.command()
@click.argument("accelerators", type=click.IntRange(1, MANY))
@_TOPOLOGY
@click.option("--busy", default="", help="Accelerators that are busy: numbers separated by commas.")
@_TORUS
@_SERVER
@_PORTS
@json_option
def place(accelerators: int, topology: Any, busy: str, torus: str, per_server: int, ports: int, as_json: bool) -> None:
    """Place one slice on both kinds of rack while some accelerators are busy.

    Example: `lumion slice place 8 --topology torus --busy 0,5,10,15,21`
    """
    import numpy as np

    from lumion_hw.planning import SliceRequest

    request = SliceRequest(accelerators, topology)
    racks = _racks(torus, per_server, ports)
    taken = np.zeros(racks["torus"].size, dtype=np.bool_)
    for part in filter(None, busy.split(",")):
        if not (part.strip().isdecimal() and int(part) < len(taken)):
            raise click.UsageError(
                f"--busy: {part[:40]!r} is not an accelerator: give numbers from 0 to {len(taken) - 1}."
            )
        taken[int(part)] = True
    found = {name: rack.place(request, taken) for name, rack in racks.items()}
    if as_json:
        echo_json(
            {
                name: None
                if placed is None
                else {
                    "accelerators": placed.accelerators,
                    "box": placed.box,
                    "bandwidth_share": placed.bandwidth_share,
                    "circuits": placed.circuits if name == "fabric" else None,
                }
                for name, placed in found.items()
            }
        )
        return
    for name, placed in found.items():
        if placed is None:
            say(f"{name}: does not fit: {int((~taken).sum())} accelerators are free")
            continue
        box = f", box {'x'.join(map(str, placed.box))}" if placed.box else ""
        say(f"{name}: {', '.join(map(str, placed.accelerators))}{box}")
        say(f"  an all-reduce can use {placed.bandwidth_share:.0%} of the links")
        if name == "fabric":
            say(f"  circuits: {', '.join(f'{one}-{other}' for one, other in placed.circuits) or 'none'}")


@slice_.command()
@click.option(
    "--load",
    type=Number("", 0.0, 100.0, above=True),
    default=1.0,
    show_default=True,
    help="Requested accelerators relative to the size of the rack.",
)
@click.option("--requests", type=click.IntRange(1, MANY), default=10_000, show_default=True, help="Number of requests.")
@MIX
@COUNTED_BY
@_TOPOLOGY
@_TORUS
@_SERVER
@_PORTS
@click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed. Both racks get the same requests.")
@out_option("Plot the outcome of the requests to this file: .png, .svg or .pdf.", "--plot")
@force_option
@json_option
def stream(
    load: float,
    requests: int,
    mix: str,
    counted_by: Any,
    topology: Any,
    torus: str,
    per_server: int,
    ports: int,
    seed: int,
    plot: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Serve random requests on both kinds of rack; show acceptance, fragmentation and bandwidth."""
    from lumion_hw.planning import job_mix, serve_stream

    jobs = job_mix(mix, counted_by)
    found = {}
    for name, rack in _racks(torus, per_server, ports).items():
        with RunProgress(None, quiet=True) as bars:
            found[name] = serve_stream(
                rack, jobs, load=load, requests=requests, seed=seed, topology=topology, progress=bars
            )
    if plot is not None:
        from lumion_hw.files.writing import over
        from lumion_hw.planning import plot_stream

        plot_stream(found, plot, over(force))
    if as_json:
        echo_json(found)
        return
    echo_table(
        f"{requests} requests at {load:g} times the rack",
        ("rack", "accepted", "too few free", "fragmented", "at work", "links used", "all links would be"),
        [
            (
                name,
                *(f"{share:.1%}" for share in (one.accepted, one.short, one.fragmented, one.used, one.bandwidth_share)),
                f"{one.fabric_speedup:.2f}x",
            )
            for name, one in found.items()
        ],
    )
