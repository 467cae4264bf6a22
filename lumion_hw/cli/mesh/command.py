"""``lumion mesh``: draw a mesh, route circuits through it, find matchings, program a matrix."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lumion_hw.cli.common.bench_notes import unseen_notes, unseen_pucs, wired_ports
from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import MAX_COUNT, PORT, SEED, Number, count_option
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option, note
from lumion_hw.cli.common.outputs import force_option, out_option
from lumion_hw.cli.common.progress import RunProgress
from lumion_hw.cli.mesh.program import program

if TYPE_CHECKING:
    from lumion_hw.mesh.layout.faults import MeshFaults
    from lumion_hw.mesh.layout.topology import MeshTopology, State
    from lumion_hw.mesh.picture.values import PictureValues
    from lumion_hw.mesh.routing import Routing
    from lumion_hw.mesh.routing.matchings import AllToAll

_LOSS_DB, _COUPLING = Number("dB", 0.0, 10_000.0), Number("", 0.0, 1.0)
_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group(cls=NamedGroup)
def mesh() -> None:
    """Draw a mesh, route circuits through it, find matchings, program a matrix.

    A mesh is given as smartlight, columns:2,3,2 (cells per column), rings:3, rectangular:8 (ports on each side), a JSON
    file written by `lumion mesh show --json`, or a bench file.
    """


mesh.add_command(program)


def _mesh_option(function: _Command) -> _Command:
    text = "Mesh: smartlight, columns:2,3,2, rings:3, rectangular:8, a JSON file or a bench file."
    decorated: _Command = click.option("--mesh", "layout", default="smartlight", show_default=True, help=text)(function)
    return decorated


def _fault_options(function: _Command) -> _Command:
    for option in (
        click.option("--dead-port", "dead_ports", type=PORT, multiple=True, help="Port that circuits must not use."),
        click.option("--excess-loss", multiple=True, metavar="PUC=DB", help="Additional loss of a PUC, in dB."),
        click.option(
            "--stuck", multiple=True, metavar="PUC=STATE", help="PUC stuck in bar, cross or a coupling from 0 to 1."
        ),
    ):
        function = option(function)
    return function


@mesh.command()
@_mesh_option
@_fault_options
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="PUC=STATE",
    help="State of a PUC: bar, cross, or its coupling: the share of the power, from 0 to 1, that changes the rail.",
)
@out_option("SVG file to write.  [default: standard output]", "--output", "-o")
@force_option
@json_option
def show(
    layout: str,
    stuck: Sequence[str],
    excess_loss: Sequence[str],
    dead_ports: Sequence[int],
    states: Sequence[str],
    output: pathlib.Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Draw a mesh as SVG, or print it as JSON.

    With a bench file the picture marks the PUCs whose light, from the wired inputs, reaches no monitor or meter.
    """
    from lumion_hw.mesh.picture.drawing import mesh_svg

    topology, channels = _mesh_and_channels(layout)
    faults = _faults(topology, stuck, excess_loss, dead_ports)
    settings = _settings(topology, states)
    if as_json:
        echo_json(topology.to_dict())
    if output is not None or not as_json:
        failed, unlit, fibres = {*faults.stuck, *faults.excess_loss_db}, dict[int, str](), None
        if _is_bench_file(layout):
            from lumion_hw.bench.file.loader import load_bench

            model = load_bench(layout)
            unlit, fibres = unseen_pucs(model), wired_ports(model)
        svg = mesh_svg(
            topology,
            states={puc: setting for puc, setting in settings.items() if not isinstance(setting, float)},
            values=_couplings(settings),
            failed=failed,
            unlit=unlit,
            heater_channels=channels,
            fibres=fibres,
        )
        _write(svg, output, force)
        for text in unseen_notes(unlit, "the picture"):
            note(text)


@mesh.command()
@_mesh_option
@json_option
def heaters(layout: str, as_json: bool) -> None:
    """List the cells of a mesh with the drive channels of their heaters.

    The channels come from the bench file, if one is given. Otherwise the heaters are numbered from 0.
    """
    topology, pairs = _heater_channels(layout)
    rows = [
        (cell, name, kind, upper, lower)
        for cell, (name, kind, (upper, lower)) in enumerate(
            zip(topology.cell_names, topology.cell_kinds, pairs, strict=True)
        )
    ]
    columns = ("cell", "name", "kind", "upper", "lower")
    if as_json:
        cells = [dict(zip(columns, row, strict=True)) for row in rows]
        echo_json({"mesh": topology.label, "mesh_sha256": topology.sha256, "cells": cells})
    else:
        echo_table("Drive channels", columns, rows)


@mesh.command()
@_mesh_option
@_fault_options
@click.option("--connect", "pairs", multiple=True, required=True, metavar="A:B", help="Circuit from port A to port B.")
@click.option(
    "--objective", type=click.Choice(["loss", "hops"]), default="loss", show_default=True, help="Quantity to minimize."
)
@click.option(
    "--puc-loss-db", type=Number("dB", 0.0, 100.0), default=0.5, show_default=True, help="Loss per PUC, in dB."
)
@click.option("--max-hops", type=click.IntRange(1, MAX_COUNT), help="Largest number of PUCs on a path.")
@click.option("--max-loss-db", type=_LOSS_DB, help="Largest loss of a path, in dB.")
@click.option("--exact-hops", multiple=True, metavar="I=N", help="Give circuit I (from 0) exactly N PUCs.")
@click.option("--equal-hops", multiple=True, metavar="I,J,...", help="Give these circuits equal numbers of PUCs.")
@click.option(
    "--certify",
    is_flag=True,
    help="Prove that the routing is optimal, or print a lower bound (optional dependency 'cpsat').",
)
@click.option(
    "--time-limit",
    type=Number("s", 0.0, 86400.0),
    default=10.0,
    show_default=True,
    help="Time limit for CP-SAT, in seconds.",
)
@out_option("SVG figure of the circuits to write.", "--svg")
@force_option
@json_option
def route(
    layout: str,
    stuck: Sequence[str],
    excess_loss: Sequence[str],
    dead_ports: Sequence[int],
    pairs: Sequence[str],
    objective: str,
    puc_loss_db: float,
    max_hops: int | None,
    max_loss_db: float | None,
    exact_hops: Sequence[str],
    equal_hops: Sequence[str],
    certify: bool,
    time_limit: float,
    svg: pathlib.Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Route circuits so that no two circuits share a waveguide or need different states of a PUC; park unused PUCs."""
    from lumion_hw.mesh.routing import RouteRequest, route as find_routes
    from lumion_hw.mesh.routing.parking import park_unused_pucs

    topology = mesh_named(layout)
    faults = _faults(topology, stuck, excess_loss, dead_ports)
    request = RouteRequest(
        [_two("--connect", text, ":") for text in pairs],
        objective=objective,
        puc_loss_db=puc_loss_db,
        faults=faults,
        max_hops=max_hops,
        max_loss_db=max_loss_db,
        exact_hops=dict(_two("--exact-hops", text, "=") for text in exact_hops),
        equal_hops=[_integers("--equal-hops", text, ",") for text in equal_hops],
        exact_search="always" if certify else "rescue",
        time_limit_s=time_limit,
    )
    with RunProgress(None, quiet=True) as bars:
        routing = find_routes(topology, replace(request, progress=bars))
    parked = park_unused_pucs(topology, routing.states, unusable=faults.unusable_states()).states
    if svg is not None:
        _write(_draw_circuits(topology, routing, parked, faults), svg, force)
    if as_json:
        echo_json(routing_document(topology, routing, parked))
    else:
        _print_routing(routing)


@mesh.command()
@_mesh_option
@_fault_options
@click.option("--ports", help="Ports to connect with each other, such as 0,4,8,12.")
@click.option(
    "--count", type=click.IntRange(2, MAX_COUNT), help="Connect this many ports, evenly spaced around the mesh."
)
@click.option("--max-hops", type=click.IntRange(1, MAX_COUNT), help="Largest number of PUCs on a path.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed.")
@count_option("--steps", default=1000, lowest=0, meaning="Number of search steps.")
@json_option
def matchings(
    layout: str,
    stuck: Sequence[str],
    excess_loss: Sequence[str],
    dead_ports: Sequence[int],
    ports: str | None,
    count: int | None,
    max_hops: int | None,
    seed: int,
    steps: int,
    as_json: bool,
) -> None:
    """Find the fewest mesh configurations that together connect every port to every other port."""
    from lumion_hw.mesh.routing.matchings import all_to_all

    topology = mesh_named(layout)
    faults = _faults(topology, stuck, excess_loss, dead_ports)
    if (ports is None) == (count is None):
        raise click.UsageError("Give either --ports or --count.")
    selected = _evenly_spaced_ports(topology, count) if count is not None else _integers("--ports", ports or "", ",")
    result = all_to_all(topology, selected, max_hops=max_hops, faults=faults, seed=seed, steps=steps)
    if as_json:
        echo_json({"mesh": topology.label, "mesh_sha256": topology.sha256, **result.to_dict()})
    else:
        _print_configurations(result)


def mesh_named(layout: str) -> MeshTopology:
    """Return the mesh of a layout such as ``rings:3``, a JSON file or a bench file.

    Raises:
        BadParameter: The size of the layout is invalid.
        ConfigError: The file contains no mesh, or the layout is unknown.
    """
    from lumion_hw.mesh.layout.topologies import build_mesh

    name, _, size = layout.partition(":")
    if _is_bench_file(layout):
        from lumion_hw.bench.file.loader import load_bench

        return load_bench(layout).topology()
    if layout.endswith(".json"):
        return _read_mesh(pathlib.Path(layout))
    return build_mesh(name, _integers("--mesh", size, ",") if size else ())


def _is_bench_file(layout: str) -> bool:
    from lumion_hw.mesh.layout.topologies import LAYOUTS

    return layout.partition(":")[0] not in LAYOUTS and not layout.endswith(".json")


def _mesh_and_channels(layout: str) -> tuple[MeshTopology, tuple[int, ...]]:
    if not _is_bench_file(layout):
        return mesh_named(layout), ()
    from lumion_hw.bench.file.loader import load_bench

    model = load_bench(layout)
    return model.topology(), () if model.mesh is None else model.mesh.channels()


def _heater_channels(layout: str) -> tuple[MeshTopology, list[tuple[int | None, int | None]]]:
    from lumion_hw.bench.file.layout import default_heater_channels
    from lumion_hw.mesh.layout.cells import NO_CHANNEL

    topology, channels = _mesh_and_channels(layout)
    if not channels:
        return topology, default_heater_channels(topology)
    numbers = [None if channel == NO_CHANNEL else channel for channel in channels]
    return topology, list(zip(numbers[0::2], numbers[1::2], strict=True))


def _read_mesh(path: pathlib.Path) -> MeshTopology:
    from lumion_hw.errors import ConfigError
    from lumion_hw.files.reading import read_json
    from lumion_hw.mesh.layout.topologies import mesh_from_dict

    document = read_json(path, "mesh file")
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a mesh file", hint="`lumion mesh show --json` writes one.")
    return mesh_from_dict(document)


def routing_document(topology: MeshTopology, routing: Routing, parked: dict[int, State]) -> dict[str, Any]:
    """Return a routing as a JSON document. ``parked`` is the state of every PUC."""
    return {
        "mesh": topology.label,
        "mesh_sha256": topology.sha256,
        "outcome": routing.outcome,
        "method": routing.method,
        "cost": routing.cost,
        "bound": routing.bound,
        "total_hops": routing.total_hops,
        "paths": [
            {
                "source": path.source,
                "target": path.target,
                "hops": path.hops,
                "loss_db": path.loss_db,
                "pucs": list(path.pucs),
            }
            for path in routing.paths
        ],
        "states": {str(puc): state for puc, state in sorted(routing.states.items())},
        "parked": {str(puc): state for puc, state in sorted(parked.items()) if puc not in routing.states},
    }


def _print_routing(routing: Routing) -> None:
    signs = {"bar": "=", "cross": "x"}
    rows = [
        (
            p.source,
            p.target,
            p.hops,
            f"{p.loss_db:.2f}",
            " ".join(f"{puc}{signs[routing.states[puc]]}" for puc in p.pucs),
        )
        for p in routing.paths
    ]
    echo_table("Circuits", ("from", "to", "hops", "loss dB", "PUCs (= bar, x cross)"), rows)
    bound = "proven optimal" if routing.outcome == "optimal" else f"lower bound {routing.bound:g}"
    echo_text(f"total {routing.total_hops} hops; cost {routing.cost:g}, {bound}; found by {routing.method}")


def _print_configurations(result: AllToAll) -> None:
    rows = [
        (
            number,
            len(configuration.paths),
            max(path.hops for path in configuration.paths),
            " ".join(f"{a}-{b}" for a, b in configuration.pairs),
        )
        for number, configuration in enumerate(result.configurations)
    ]
    echo_table("Configurations", ("no", "pairs", "longest", "connected ports"), rows)
    echo_text(
        f"{len(result.configurations)} configurations for {len(result.ports)} ports, lower bound {result.lower_bound}; "
        f"longest path {result.longest_hops} hops"
    )


def _draw_circuits(topology: MeshTopology, routing: Routing, states: dict[int, State], faults: MeshFaults) -> str:
    from lumion_hw.mesh.picture.drawing import PicturePath, mesh_svg

    paths = [
        PicturePath(
            label=f"{path.source} → {path.target}",
            source=path.source,
            pucs=path.pucs,
            loss_db=path.loss_db,
            source_name="in",
            target_name="out",
        )
        for path in routing.paths
    ]
    return mesh_svg(topology, states=states, paths=paths, failed={*faults.stuck, *faults.excess_loss_db})


def _write(svg: str, output: pathlib.Path | None, force: bool) -> None:
    from lumion_hw.files.writing import overwrite_policy, write_file

    if output is None:
        click.echo(svg, nl=False)
    else:
        write_file(output, "the figure", svg, overwrite_policy(force))
        note(f"wrote {output}")


def _faults(
    topology: MeshTopology, stuck: Sequence[str], excess_loss: Sequence[str], dead_ports: Sequence[int]
) -> MeshFaults:
    from lumion_hw.mesh.layout.faults import MeshFaults

    stuck_at: dict[int, State | float] = {}
    for puc, value in (_assignment(text) for text in stuck):
        stuck_at[puc] = _setting(value)
    losses = {puc: _LOSS_DB.convert(value, None, None) for puc, value in (_assignment(text) for text in excess_loss)}
    faults = MeshFaults(stuck_at, losses, frozenset(dead_ports))
    faults.check(topology)
    return faults


def _settings(topology: MeshTopology, texts: Sequence[str]) -> dict[int, State | float]:
    """Return the states and couplings of PUCs, from texts such as ``10=bar`` and ``3=0.5``."""
    from lumion_hw.mesh.layout.cells import CELL_KINDS

    settings: dict[int, State | float] = {}
    for puc, value in map(_assignment, texts):
        if puc >= topology.n_pucs:
            raise click.BadParameter(f"there is no PUC {puc}; this mesh has PUCs 0 to {topology.n_pucs - 1}")
        kind = CELL_KINDS[topology.cell_kinds[puc]]
        if not kind.interferes:
            raise click.BadParameter(f"PUC {puc} has no states: it is a {kind.description}")
        settings[puc] = _setting(value)
    return settings


def _couplings(settings: Mapping[int, State | float]) -> PictureValues | None:
    from lumion_hw.mesh.picture.values import PictureValues

    couplings = {puc: setting for puc, setting in settings.items() if isinstance(setting, float)}
    return PictureValues("coupling", "", couplings, scale=(0.0, 1.0)) if couplings else None


def _evenly_spaced_ports(topology: MeshTopology, count: int) -> list[int]:
    fibres = topology.fibre_ports
    if count > len(fibres):
        raise click.BadParameter(f"{count} is too large: this mesh has {len(fibres)} fibre ports", param_hint="--count")
    return [fibres[index * len(fibres) // count] for index in range(count)]


def _two(option: str, text: str, separator: str) -> tuple[int, int]:
    first, second = _integers(option, text, separator, 2)
    return first, second


def _integers(option: str, text: str, separator: str, count: int | None = None) -> list[int]:
    parts = text.split(separator)
    if (count is not None and len(parts) != count) or not all(part.strip().isdecimal() for part in parts):
        example = separator.join(["5", "12", "19"][: count or 3])
        raise click.BadParameter(f"{text!r} is not of the form {example}", param_hint=option)
    return [int(part) for part in parts]


def _assignment(text: str) -> tuple[int, str]:
    puc, sign, value = text.partition("=")
    if not sign or not puc.isdecimal():
        raise click.BadParameter(f"{text!r} is not of the form PUC=VALUE, such as 10=bar")
    return int(puc), value


def _setting(text: str) -> State | float:
    if text == "bar":
        return "bar"
    if text == "cross":
        return "cross"
    with contextlib.suppress(ValueError):
        float(text)
        return _COUPLING.convert(text, None, None)
    raise click.BadParameter(f"{text!r} is not a state; give bar, cross or a coupling from 0 to 1")
