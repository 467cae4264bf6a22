"""``lumion bench``: check and show bench files, and print their JSON Schema. Uses no hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.bench_notes import bench_notes, unseen_notes, unseen_pucs
from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, error_document, json_option, note
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.bench.file.devices import DeviceModel
    from lumion_hw.bench.file.model import BenchModel


@click.group(cls=NamedGroup)
def bench() -> None:
    """Check and show bench files, and print their JSON Schema.

    FILE is the path of a bench file or the name of a built-in bench, such as lumion-prototype.
    """


@bench.command()
@click.argument("file")
@json_option
@click.pass_context
def check(ctx: click.Context, file: str, as_json: bool) -> None:
    """List every mistake in FILE with its line and column, and warn about what hinders a calibration.

    The exit code is 2 if there is a mistake.
    """
    from lumion_hw.bench.file.loader import check_bench, indistinguishable_devices, load_bench

    problems = check_bench(file)
    if problems and as_json:
        message = f"{len(problems)} mistake{'s' if len(problems) > 1 else ''} in bench file {file}"
        document = error_document(ConfigError(message), ConfigError.exit_code)
        document["error"]["problems"] = problems
        echo_json(document)
        ctx.exit(ConfigError.exit_code)
    model = load_bench(file)
    counts = {
        "devices": len(device_rows(model)),
        "inputs": len(model.wiring.inputs),
        "outputs": len(model.wiring.outputs),
        "servers": len(model.servers),
    }
    notes = [
        f"{', '.join(names)} of kind {kind}: the serial numbers of these devices cannot be read, so a swapped pair is "
        "not detected. Use paths under /dev/serial/by-id, and check once with light which device is which."
        for kind, names in indistinguishable_devices(model).items()
    ]
    notes += [*bench_notes(model), *unseen_notes(unseen_pucs(model), f"`lumion mesh show --mesh {file}`")]
    if as_json:
        echo_json({"file": file, "name": model.name, "valid": True, **counts, "notes": notes})
        return
    echo_text(f"{file}: ok: {model.name} with " + ", ".join(f"{n} {item}" for item, n in counts.items()))
    for text in notes:
        note(text)


@bench.command()
def schema() -> None:
    """Print the JSON Schema of bench files, for editors and other validators."""
    from lumion_hw.bench.file.known_kinds import all_kinds
    from lumion_hw.bench.file.loader import bench_schema

    kinds, unusable = all_kinds()
    for error in unusable:
        note(f"skipped: {error}")
    echo_json(bench_schema(kinds))


@bench.command()
@click.argument("file")
@json_option
def show(file: str, as_json: bool) -> None:
    """Show the contents of bench file FILE as tables, including default values."""
    from lumion_hw.bench.file.loader import load_bench

    model = load_bench(file)
    if as_json:
        echo_json(model.model_dump(mode="json"))
        return
    echo_text(f"{model.name}\n{model.description}\n")
    echo_table("Devices", ("name", "kind", "serial", "address"), device_rows(model))
    echo_text(f"Mesh\n{_mesh_line(model)}\n")
    echo_table("Inputs", ("source", "port", "polarization", "loss dB", "gain dB"), input_rows(model))
    headers = ("port", "transponder", "loss dB", "meter", "channel", "tap")
    echo_table("Outputs", headers, output_rows(model))
    echo_table("Servers", ("name", "NICs", "risk group", "role"), server_rows(model))


def device_rows(model: BenchModel) -> list[tuple[object, ...]]:
    """Return a table row for each device: name, kind, expected serial number or modules, address."""
    from lumion_hw.bench.file.devices import is_several

    own = {name: device for name, device in model.devices.items() if not is_several(device)}
    return [(name, device.kind, _expected_identity(device), device.address) for name, device in own.items()]


def _expected_identity(device: DeviceModel) -> str | None:
    modules = getattr(device, "modules", None)
    return " ".join(modules) if modules else getattr(device, "serial", None)


def input_rows(model: BenchModel) -> list[tuple[object, ...]]:
    """Return a table row for each input: module or laser, port, polarization controller, loss, gain."""
    return [(p.source, p.port, p.polarization, p.loss_db, p.gain_db) for p in model.to_wiring().inputs]


def output_rows(model: BenchModel) -> list[tuple[object, ...]]:
    """Return a table row for each output: port, transponder, loss, meter, channel, tapped fraction."""
    return [
        (p.port, p.transponder, p.loss_db, p.meter, p.meter_channel, f"{p.tap_fraction:.0%}" if p.meter else None)
        for p in model.to_wiring().outputs
    ]


def server_rows(model: BenchModel) -> list[tuple[object, ...]]:
    """Return a table row for each server: name, NICs, risk group, role."""
    roles: dict[str, Any] = {name: f"spare {i}" for i, name in enumerate(model.fabric.spares, start=1)}
    for job in model.fabric.all_jobs:
        for name in job.members:
            members = ", ".join(other for other in job.members if other != name)
            roles[name] = f"paired with {members}" if job.topology == "pair" else f"{job.topology} with {members}"
    rows: list[tuple[object, ...]] = []
    for server in model.servers:
        rows.append(
            (server.name, " ".join(server.nics), " ".join(sorted(server.risks)) or None, roles.get(server.name))
        )
        rows += [(f"  {part.name}", " ".join(part.nics), None, roles.get(part.name)) for part in server.accelerators]
    return rows


def _mesh_line(model: BenchModel) -> str:
    if model.mesh is None:
        return "none"
    mesh, chip = model.mesh, model.topology()
    losses = f"{mesh.typical.puc_loss_db:g} dB per PUC, {mesh.typical.access_loss_db:g} dB per port"
    detectors = f"{len(model.monitors())} monitors"
    if not model.monitors():
        detectors = f"{sum(bool(path.meter) for path in model.to_wiring().outputs)} power meter channels"
    size = f"{chip.n_pucs} PUCs, {chip.n_ports} ports, {len(chip.fibre_ports)} fibres, {detectors}"
    return f"{chip.label} on {mesh.controller}: {size}; typically {losses}"
