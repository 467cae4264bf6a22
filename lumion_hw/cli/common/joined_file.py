"""The option ``--joined`` of commands for one bench whose mesh is joined to others by fibres."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lumion_hw.interfaces.wiring import NO_ENDS, FibreEnds

if TYPE_CHECKING:
    from lumion_hw.bench.file.model import BenchModel

joined_option = click.option(
    "--joined",
    metavar="JOINED",
    type=click.Path(dir_okay=False),
    help="File of joined meshes: fibres from BENCH to other benches.",
)
"""The option ``--joined``."""


def ends_of_bench(joined: str | None, model: BenchModel) -> FibreEnds:
    """Return the ports of a bench with fibres to other meshes; none without a file of joined meshes.

    Raises:
        ConfigError: The file has mistakes, or does not fit the bench.
    """
    if joined is None:
        return NO_ENDS
    from lumion_hw.joined import load_joined

    file = load_joined(joined)
    ends = file.ends_of(model.name)
    file.check_bench(model.name, model)
    return ends
