"""The command group ``lumion`` and the table of its commands."""

from __future__ import annotations

import click

from lumion_hw.cli.common.lazy import LazyCommand, LazyGroup
from lumion_hw.cli.common.version import version_option

COMMANDS = (
    LazyCommand("demo", "lumion_hw.cli.demo.command:demo", "Calibrate, connect, break and recover the built-in bench."),
    LazyCommand("emulate", "lumion_hw.cli.emulate:emulate", "Emulate the devices of a bench file for other programs."),
    LazyCommand("fault", "lumion_hw.cli.fault:fault", "Inject and clear faults of an emulated bench, for rehearsals."),
    LazyCommand("serve", "lumion_hw.cli.serve:serve", "Serve a bench to several users and programs."),
    LazyCommand("discover", "lumion_hw.cli.discover:discover", "Find and identify instruments; draft a bench file."),
    LazyCommand("log", "lumion_hw.cli.log:log", "Record readings of a bench at a fixed rate."),
    LazyCommand("scan", "lumion_hw.cli.scan:scan", "Sweep settings of a bench and record readings."),
    LazyCommand("plot", "lumion_hw.cli.plot:plot", "Draw a recording."),
    LazyCommand("export", "lumion_hw.cli.export:export", "Convert a recording to documents of bluesky's event model."),
    LazyCommand("monitor", "lumion_hw.cli.monitor:monitor", "Show readings of a bench as a live table."),
    LazyCommand("snapshot", "lumion_hw.cli.snapshot:snapshot", "Save the settings of all devices."),
    LazyCommand("restore", "lumion_hw.cli.snapshot:restore", "Show differences and restore saved settings."),
    LazyCommand("connect", "lumion_hw.cli.circuits:connect", "Connect modules through the mesh, verified by light."),
    LazyCommand("apply", "lumion_hw.cli.apply:apply", "Change the circuits to those of a file."),
    LazyCommand("disconnect", "lumion_hw.cli.circuits:disconnect", "Disconnect circuits, or switch everything off."),
    LazyCommand("circuits", "lumion_hw.cli.circuits:circuits", "List the connected circuits with their margins."),
    LazyCommand("budget", "lumion_hw.cli.circuits:budget", "Print link budgets without using hardware."),
    LazyCommand("explain", "lumion_hw.cli.circuits:explain", "Explain why a circuit takes its path."),
    LazyCommand("hold", "lumion_hw.cli.circuits:hold", "Maintain circuits: polarization, drift, alarms, leases."),
    LazyCommand("faults", "lumion_hw.cli.faults:faults", "List and clear latched faults of a mesh controller."),
    LazyCommand("fabric", "lumion_hw.cli.fabric:fabric", "Keep jobs connected; replace failed servers by spares."),
    LazyCommand("joined", "lumion_hw.cli.joined:joined", "Connect modules over meshes that are joined by fibres."),
    LazyCommand(
        "schedule",
        "lumion_hw.cli.schedule.command:schedule",
        "Build and check schedules; run job phases.",
    ),
    LazyCommand("slice", "lumion_hw.cli.plan.slice:slice_", "Allocate slices of a rack, on a torus and on a fabric."),
    LazyCommand("plan", "lumion_hw.cli.plan.command:plan", "Plan spares; compare recovery policies and networks."),
    LazyCommand("rehearse", "lumion_hw.cli.rehearse:rehearse", "Rehearse the loss of a server in a training job."),
    LazyCommand("bench", "lumion_hw.cli.bench:bench", "Check and show bench files, print their schema."),
    LazyCommand("new-driver", "lumion_hw.cli.new_driver:new_driver", "Create a package for your own driver."),
    LazyCommand(
        "transponder", "lumion_hw.cli.transponder.command:transponder", "Show, tune and update modules; decode dumps."
    ),
    LazyCommand("mesh", "lumion_hw.cli.mesh.command:mesh", "Draw a mesh, route circuits, program a matrix."),
)
"""All commands of ``lumion``, in the order of ``lumion --help``."""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    other_programs=("lumion-calibrate",),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@version_option
def lumion() -> None:
    """Control and calibrate a photonic-fabric bench, set up circuits, and rehearse failures.

    Start with `lumion demo`, which needs no hardware.
    """
