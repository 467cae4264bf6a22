"""``lumion plan joined``: a hierarchy of meshes for many accelerators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lumion_hw.cli.common.numbers import SEED, Number
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _size_option(name: str, meaning: str) -> Callable[[_Command], _Command]:
    text = f"{meaning}; a power of 2."
    return click.option(name, type=click.IntRange(2, 1024), default=64, show_default=True, help=text)


@click.command()
@click.option(
    "--accelerators", type=click.IntRange(2, 131_072), default=100_000, show_default=True, help="Accelerators."
)
@_size_option("--per-rack", "Accelerators of a rack")
@_size_option("--radix", "Ports on each side of a spine")
@click.option("--load", type=Number("", 0.0, 1.0), default=0.9, show_default=True, help="Share that sends to another.")
@click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed.")
@json_option
def joined(accelerators: int, per_rack: int, radix: int, load: float, seed: int, as_json: bool) -> None:
    """Plan random circuits over racks, spines and cores of meshes, without hardware.

    Prints the number of meshes, the time of planning on one core, the size of the state, and how many circuits fail
    together with a mesh.
    """
    from lumion_hw.planning import MeshHierarchy, plan_hierarchy

    result = plan_hierarchy(MeshHierarchy(accelerators, per_rack, radix), load, seed)
    if as_json:
        echo_json({"result": result, "fibres": result.hierarchy.fibres})
        return
    echo_table(
        f"{accelerators:,} accelerators, {result.circuits:,} circuits",
        ("mesh", "number", "PUCs", "circuits", "at most", "fail together", "paths ms", "state kB"),
        [
            (
                level.name,
                level.meshes,
                level.pucs,
                round(level.circuits, 1),
                level.most_circuits,
                f"{level.share:.2%}",
                round(1e3 * level.route_s, 2),
                round(level.state_bytes / 1e3, 1),
            )
            for level in result.levels
        ],
    )
    echo_text(
        f"fibres between meshes: {result.hierarchy.fibres:,}; segments: {result.segments:,}\n"
        f"planning on one core: fibres {result.choice_s:.2f} s, paths {result.route_s:.2f} s; "
        f"{result.choice_s + result.levels[0].route_s:.2f} s if every bench finds its own paths\n"
        f"state of all benches: {result.state_bytes / 1e6:.0f} MB\n"
        f"circuits of a failed spine or core fit on the others up to a load of {result.spare_load:.1%}; "
        f"a failed rack puts its {per_rack} accelerators out of reach"
    )
