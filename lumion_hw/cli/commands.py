"""The ``lumion`` group and the table of its commands."""

from __future__ import annotations

import click

from lumion_hw.cli.common.lazy import LazyCommand, LazyGroup
from lumion_hw.cli.common.version import version_option

COMMANDS = (
    LazyCommand("demo", "lumion_hw.cli.demo.command:demo", "Calibrate, connect, break and recover the built-in bench."),
    LazyCommand("emulate", "lumion_hw.cli.emulate:emulate", "Serve the devices of a bench file on TCP and ptys."),
    LazyCommand("serve", "lumion_hw.cli.serve:serve", "Let several people and programs use a bench, over PV Access."),
    LazyCommand("discover", "lumion_hw.cli.discover:discover", "Find and identify instruments; draft a bench file."),
    LazyCommand("log", "lumion_hw.cli.log:log", "Record readings of a bench at a steady rate."),
    LazyCommand("scan", "lumion_hw.cli.scan:scan", "Sweep settings of a bench against readings."),
    LazyCommand("plot", "lumion_hw.cli.plot:plot", "Draw a recording."),
    LazyCommand("export", "lumion_hw.cli.export:export", "Write a recording as documents of bluesky's event model."),
    LazyCommand("monitor", "lumion_hw.cli.monitor:monitor", "Show readings of a bench as a live table."),
    LazyCommand("snapshot", "lumion_hw.cli.snapshot:snapshot", "Store the settings of every device."),
    LazyCommand("restore", "lumion_hw.cli.snapshot:restore", "Put stored settings back, after showing what differs."),
    LazyCommand("connect", "lumion_hw.cli.circuits:connect", "Connect modules through the mesh, proven by light."),
    LazyCommand("disconnect", "lumion_hw.cli.circuits:disconnect", "Take circuits down, or bring the mesh to rest."),
    LazyCommand("circuits", "lumion_hw.cli.circuits:circuits", "List what is connected: age, margins, marks."),
    LazyCommand("budget", "lumion_hw.cli.circuits:budget", "What would arrive over a circuit; touches no hardware."),
    LazyCommand("explain", "lumion_hw.cli.circuits:explain", "Say why a circuit takes its way."),
    LazyCommand("hold", "lumion_hw.cli.circuits:hold", "Keep circuits up: polarization, drift, alarms, leases."),
    LazyCommand("faults", "lumion_hw.cli.faults:faults", "List and clear latched faults of the mesh controller."),
    LazyCommand("fabric", "lumion_hw.cli.fabric:fabric", "Keep jobs connected; spares replace what fails."),
    LazyCommand(
        "schedule", "lumion_hw.cli.schedule:schedule", "Sequences of circuits, what they cost, phases of a job."
    ),
    LazyCommand("slice", "lumion_hw.cli.slice:slice_", "Slices of a rack, on a torus and on a circuit fabric."),
    LazyCommand("plan", "lumion_hw.cli.plan:plan", "Spares for a service level; what policies of recovery cost."),
    LazyCommand("rehearse", "lumion_hw.cli.rehearse:rehearse", "Lose a server of a real training job, and go on."),
    LazyCommand("bench", "lumion_hw.cli.bench:bench", "Check, show and describe bench files."),
    LazyCommand("new-driver", "lumion_hw.cli.new_driver:new_driver", "Make a package with a driver of your own."),
    LazyCommand("transponder", "lumion_hw.cli.transponder:transponder", "Show, tune, update modules; decode dumps."),
    LazyCommand("mesh", "lumion_hw.cli.mesh:mesh", "Draw a mesh, route circuits through it, find matchings."),
)
"""One row per command; a new command is one more row."""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    other_programs=("lumion-calibrate",),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@version_option
def lumion() -> None:
    """Drive, calibrate and rehearse a photonic-fabric bench.

    Start with `lumion demo`: it needs no hardware.
    """
