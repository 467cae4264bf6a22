"""``lumion emulate``: serve emulated devices on TCP and pseudo-terminals, for other programs."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.common.joined_file import ends_of_bench, joined_option
from lumion_hw.cli.common.numbers import SEED
from lumion_hw.cli.common.output import note
from lumion_hw.cli.common.outputs import force_option, out_option

if TYPE_CHECKING:
    from lumion_hw.bench.file.model import BenchModel
    from lumion_hw.clock import Clock
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.wires.light_link import LightLink
    from lumion_hw.emulator.wires.server import EmulatorServer

_COLD_HELP = (
    "Start modules as just switched on. "
    "By default they started long ago: CMIS modules are in low power, others transmit."
)


def visa_resource(address: str) -> str:
    """Convert an address to a VISA resource: ``TCPIP::host::port::SOCKET``, ``ASRL/path::INSTR`` or unchanged.

    The program that opens the resource must set the message terminator: LF, or as in the manual of the instrument.
    """
    scheme, _, location = address.partition("://")
    if scheme == "tcp":
        host, _, port = location.rpartition(":")
        return f"TCPIP::{host}::{port}::SOCKET"
    return f"ASRL{location}::INSTR" if scheme == "serial" else location


@click.command()
@click.argument("file", metavar="BENCH")
@out_option("JSON file to write: the address of each device.", "--endpoints")
@out_option("JSON file to write: the VISA resource strings of each device.", "--visa")
@force_option
@click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed.")
@click.option("--tcp-only", is_flag=True, help="Serve serial devices on TCP too, without pseudo-terminals.")
@click.option("--while-stdin", is_flag=True, help="Stop when standard input closes; for use by other programs.")
@click.option("--cold", is_flag=True, help=_COLD_HELP)
@joined_option
def emulate(
    file: str,
    endpoints: Path | None,
    visa: Path | None,
    force: bool,
    seed: int,
    tcp_only: bool,
    while_stdin: bool,
    cold: bool,
    joined: str | None,
) -> None:
    """Emulate every device of BENCH on loopback addresses until SIGTERM or Ctrl-C.

    Controllers, servers and meters listen on TCP, serial instruments on pseudo-terminals, SCPI instruments also on
    HiSLIP. Free ports are chosen unless the bench file fixes them (`emulated_port`, `emulated_hislip_port`). Pass the
    endpoints file to other commands with `--endpoints`, or its addresses to `Bench.open(file, addresses=...)`. Other
    programs inject faults with `lumion fault` and the secret in the endpoints file. The VISA file is for programs that
    open instruments through VISA. Both files are removed at the end.
    """
    from lumion_hw.bench.bench import load
    from lumion_hw.bench.emulated import emulated_bench
    from lumion_hw.clock import SystemClock
    from lumion_hw.emulator.wires.server import EmulatorServer
    from lumion_hw.files.writing import check_target, overwrite_policy
    from lumion_hw.remote.emulated_faults import CONTROL

    for path, description in ((endpoints, "the endpoints file"), (visa, "the VISA file")):
        if path is not None:
            check_target(path, description, overwrite_policy(force))
    model = load(file)
    clock = SystemClock()
    bench = emulated_bench(model, clock, seed, warm=not cold, ends=ends_of_bench(joined, model))
    # The first solution imports the solver, which takes longer than a host waits for a module. Do it now.
    bench.world.true_fields(bench.world.mesh.fibre_ports[0], bench.world.slopes.reference_hz)
    stop = threading.Event()
    if while_stdin:
        threading.Thread(target=_stop_at_end_of_input, args=(stop,), name="lumion-stdin", daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="lumion-") as directory:
        server = EmulatorServer(clock)
        try:
            addresses, resources = _serve_devices(server, bench, model, Path(directory), tcp_only)
            if joined is not None:
                server.add_unconnected(_light_link(joined, model.name, bench, clock))
            control = {CONTROL: _serve_faults(server, bench)}
            # The VISA file comes first, so that it is complete when the endpoints file appears.
            with (
                _written(visa, "the VISA file", resources, force),
                _written(endpoints, "the endpoints file", addresses | control, force),
            ):
                if endpoints is None:  # without the secret, which does not belong on a screen
                    click.echo(json.dumps(addresses, indent=1))
                note(f"{model.name}: serving {len(bench.devices)} devices, seed {seed}. Press Ctrl-C to stop.")
                server.run(stop)
        finally:
            server.close()


def _serve_devices(
    server: EmulatorServer, bench: EmulatedBench, model: BenchModel, directory: Path, tcp_only: bool
) -> tuple[dict[str, str], dict[str, list[str]]]:
    from lumion_hw.bench.file.known_kinds import kind_named

    addresses, resources = {}, {}
    for name, device in bench.devices.items():
        described = model.devices[name]
        port, hislip_port = described.emulated_port, described.emulated_hislip_port
        kind = kind_named(described.kind)
        if tcp_only or port is not None or (kind is not None and kind.wire == "tcp"):
            addresses[name] = server.add_tcp(device, port or 0)
        else:
            addresses[name] = server.add_pty(device, directory / name)
        resources[name] = [visa_resource(addresses[name])]
        if (kind is not None and kind.hislip) or hislip_port is not None:
            resources[name].append(visa_resource(server.add_hislip(device, hislip_port or 0)))
    return addresses, resources


def _light_link(joined: str, name: str, bench: EmulatedBench, clock: Clock) -> LightLink:
    """Return the link that carries light to the emulators of other benches.

    Raises:
        ConfigError: A bench at a fibre of this bench has no ``emulated_port``.
        InUseError: Another program uses the port.
    """
    from lumion_hw.emulator.optics.joined_fibres import JoinedFibre
    from lumion_hw.emulator.wires.light_link import LightLink
    from lumion_hw.errors import ConfigError
    from lumion_hw.joined import load_joined

    file = load_joined(joined)
    fibres = [fibre for fibre in file.fibres if name in (fibre.start.bench, fibre.end.bench)]
    ports = {other: entry.emulated_port for other, entry in file.benches.items() if entry.emulated_port is not None}
    missing = {end.bench for fibre in fibres for end in (fibre.start, fibre.end)} | {name}
    if missing - ports.keys():
        raise ConfigError(
            f"{joined}: {', '.join(sorted(missing - ports.keys()))} without emulated_port cannot be emulated",
            hint="Give each bench a UDP port of this host, such as emulated_port: 7001.",
        )
    carried = [
        JoinedFibre(fibre.start.bench, fibre.start.port, fibre.end.bench, fibre.end.port, fibre.loss_db)
        for fibre in fibres
    ]
    return LightLink(name, bench.world, carried, ports, clock)


def _serve_faults(server: EmulatorServer, bench: EmulatedBench) -> str:
    """Serve the scripted faults on a loopback port, and return the address with a new secret."""
    import secrets

    from lumion_hw.emulator.faults.fault_control import FaultControl, FaultPort
    from lumion_hw.remote.codec import encode_error

    secret = secrets.token_urlsafe(16)
    return f"{server.add_tcp(FaultPort(FaultControl(bench.faults), secret, encode_error))}/{secret}"


@contextlib.contextmanager
def _written(path: Path | None, description: str, content: Mapping[str, object], force: bool) -> Iterator[None]:
    """Write addresses to a file, if any, and remove it at the end, when they are no longer served."""
    from lumion_hw.files.writing import overwrite_policy, write_file

    if path is None:
        yield
        return
    text = json.dumps(content, indent=1) + "\n"

    def write_private(part: Path) -> None:
        part.touch(mode=0o600)  # the fault control's address contains a secret
        part.write_text(text, encoding="utf-8")

    try:  # a signal may come as soon as the file is there
        write_file(path, description, write_private, overwrite_policy(force))
        yield
    finally:
        with contextlib.suppress(OSError, UnicodeError):
            if path.read_text(encoding="utf-8") == text:  # not that of another emulator
                path.unlink()


def _stop_at_end_of_input(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()
