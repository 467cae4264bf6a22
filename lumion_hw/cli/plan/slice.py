"""``lumion slice``: allocate accelerators of a rack, on a torus and on a circuit fabric. Uses no bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import MAX_COUNT, SEED, Number, count_option
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option
from lumion_hw.cli.common.outputs import force_option, plot_option
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.cli.plan.command import COUNTED_BY, MIX, SERVER

if TYPE_CHECKING:
    from lumion_hw.planning.slices import Rack

_TOPOLOGIES = ("ring", "torus", "full")
_TOPOLOGY = click.option(
    "--topology",
    type=click.Choice(_TOPOLOGIES),
    default="ring",
    show_default=True,
    help="Connections among the accelerators of the slice.",
)
_TORUS = click.option(
    "--torus", default="4,4,4", show_default=True, help="Dimensions of the torus in accelerators, such as 4,4,4."
)
_PORTS = click.option(
    "--ports",
    type=click.IntRange(1, 1024),
    default=6,
    show_default=True,
    help="Number of duplex ports per accelerator.",
)


@click.group("slice", cls=NamedGroup)
def slice_() -> None:
    """Allocate slices of a rack: adjacent accelerators of a torus, or any accelerators of a circuit fabric."""


def _racks(torus: str, per_server: int, ports: int) -> dict[str, Rack]:
    from lumion_hw.planning import FabricRack, TorusRack

    try:
        length, width, height = (int(part) for part in torus.split(","))
    except ValueError:
        raise click.UsageError(f"--torus: {torus!r} is invalid; give three dimensions, such as 4,4,4.") from None
    rack = TorusRack((length, width, height))
    return {"torus": rack, "fabric": FabricRack(rack.size, per_server, ports)}


@slice_.command()
@click.argument("accelerators", type=click.IntRange(1, MAX_COUNT))
@_TOPOLOGY
@click.option("--busy", default="", help="Numbers of the busy accelerators, separated by commas.")
@_TORUS
@SERVER
@_PORTS
@json_option
def place(accelerators: int, topology: Any, busy: str, torus: str, per_server: int, ports: int, as_json: bool) -> None:
    """Place one slice among busy accelerators, in a torus rack and in a rack with a circuit fabric.

    Example: `lumion slice place 8 --topology torus --busy 0,5,10,15,21`
    """
    import numpy as np

    from lumion_hw.planning import SliceRequest

    request = SliceRequest(accelerators, topology)
    racks = _racks(torus, per_server, ports)
    is_busy = np.zeros(racks["torus"].size, dtype=np.bool_)
    for part in filter(None, busy.split(",")):
        if not (part.strip().isdecimal() and int(part) < len(is_busy)):
            raise click.UsageError(f"--busy: {part[:40]!r} is not an accelerator; give 0 to {len(is_busy) - 1}.")
        is_busy[int(part)] = True
    placements = {name: rack.place(request, is_busy) for name, rack in racks.items()}
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
                for name, placed in placements.items()
            }
        )
        return
    for name, placed in placements.items():
        if placed is None:
            echo_text(f"{name}: the slice does not fit; {int((~is_busy).sum())} accelerators are free")
            continue
        box = f", box {'x'.join(map(str, placed.box))}" if placed.box else ""
        echo_text(f"{name}: {', '.join(map(str, placed.accelerators))}{box}")
        echo_text(f"  an all-reduce can use {placed.bandwidth_share:.0%} of the links")
        if name == "fabric":
            echo_text(f"  circuits: {', '.join(f'{a}-{b}' for a, b in placed.circuits) or 'none'}")


@slice_.command()
@click.option(
    "--load",
    type=Number("", 0.0, 100.0, above=True),
    default=1.0,
    show_default=True,
    help="Offered load: mean number of requested accelerators, as a fraction of the accelerators in the rack.",
)
@count_option("--requests", default=10_000, meaning="Number of requests.")
@MIX
@COUNTED_BY
@_TOPOLOGY
@_TORUS
@SERVER
@_PORTS
@click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed; both racks get the same requests.")
@plot_option("the outcomes")
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
    """Serve random requests in a torus rack and a circuit-fabric rack; compare acceptance, fragmentation, bandwidth."""
    from lumion_hw.planning import job_mix, serve_stream

    jobs = job_mix(mix, counted_by)
    results = {}
    for name, rack in _racks(torus, per_server, ports).items():
        with RunProgress(None, quiet=True) as bars:
            results[name] = serve_stream(
                rack, jobs, load=load, requests=requests, seed=seed, topology=topology, progress=bars
            )
    if plot is not None:
        from lumion_hw.files.writing import overwrite_policy
        from lumion_hw.planning import plot_stream

        plot_stream(results, plot, overwrite_policy(force))
    if as_json:
        echo_json(results)
        return
    echo_table(
        f"{requests} requests at an offered load of {load:g}",
        ("rack", "accepted", "too few free", "fragmented", "busy", "links used", "gain with all links"),
        [
            (
                name,
                *(f"{share:.1%}" for share in (r.accepted, r.short, r.fragmented, r.used, r.bandwidth_share)),
                f"{r.fabric_speedup:.2f}x",
            )
            for name, r in results.items()
        ],
    )
