"""The ``lumion`` group and the table of its commands."""

from __future__ import annotations

import click

from lumion_hw.cli.common.lazy import LazyCommand, LazyGroup
from lumion_hw.cli.common.version import version_option

COMMANDS = (
    LazyCommand("demo", "lumion_hw.cli.demo.command:demo", "Calibrate, connect, break and recover the built-in bench."),
    LazyCommand("emulate", "lumion_hw.cli.emulate:emulate", "Serve the devices of a bench file on TCP and ptys."),
    LazyCommand("serve", "lumion_hw.cli.serve:serve", "Share a bench between programs: PV Access, web page, metrics."),
    LazyCommand("discover", "lumion_hw.cli.discover:discover", "Find and identify instruments; draft a bench file."),
    LazyCommand("log", "lumion_hw.cli.log:log", "Record readings of a bench at a steady rate."),
    LazyCommand("scan", "lumion_hw.cli.scan:scan", "Sweep settings of a bench against readings."),
    LazyCommand("plot", "lumion_hw.cli.plot:plot", "Plot a recording."),
    LazyCommand("export", "lumion_hw.cli.export:export", "Export a recording as bluesky documents."),
    LazyCommand("monitor", "lumion_hw.cli.monitor:monitor", "Show readings of a bench as a live table."),
    LazyCommand("snapshot", "lumion_hw.cli.snapshot:snapshot", "Store the settings of every device."),
    LazyCommand("restore", "lumion_hw.cli.snapshot:restore", "Restore stored settings after showing the differences."),
    LazyCommand(
        "connect", "lumion_hw.cli.circuits:connect", "Connect modules through the mesh; prove by measured light."
    ),
    LazyCommand("disconnect", "lumion_hw.cli.circuits:disconnect", "Disconnect circuits, or switch the mesh off."),
    LazyCommand("circuits", "lumion_hw.cli.circuits:circuits", "List circuits: age, margins, problems."),
    LazyCommand("budget", "lumion_hw.cli.circuits:budget", "Predict the received power of a circuit; no hardware."),
    LazyCommand("explain", "lumion_hw.cli.circuits:explain", "Explain the path of a circuit."),
    LazyCommand("hold", "lumion_hw.cli.circuits:hold", "Maintain circuits: polarization, drift, alarms, leases."),
    LazyCommand("faults", "lumion_hw.cli.faults:faults", "List and clear latched faults of the mesh controller."),
    LazyCommand("fabric", "lumion_hw.cli.fabric:fabric", "Keep jobs connected; replace failed servers by spares."),
    LazyCommand("schedule", "lumion_hw.cli.schedule:schedule", "Sequences of circuits, their cost, phases of a job."),
    LazyCommand("slice", "lumion_hw.cli.slice:slice_", "Slices of a rack on a torus and on a circuit fabric."),
    LazyCommand("plan", "lumion_hw.cli.plan:plan", "Spares for a service level; cost of recovery policies."),
    LazyCommand("rehearse", "lumion_hw.cli.rehearse:rehearse", "Fail a server of a real training job and recover."),
    LazyCommand("bench", "lumion_hw.cli.bench:bench", "Check, show and describe bench files."),
    LazyCommand("new-driver", "lumion_hw.cli.new_driver:new_driver", "Create a package with a driver of your own."),
    LazyCommand("transponder", "lumion_hw.cli.transponder:transponder", "Show, tune, update modules; decode dumps."),
    LazyCommand("mesh", "lumion_hw.cli.mesh:mesh", "Draw a mesh, route circuits through it, find matchings."),
)
"""Commands of ``lumion``, one row each."""


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
