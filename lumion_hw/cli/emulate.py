"""``lumion emulate``: the devices of a bench file on TCP and ptys, for other programs."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path

import click

from lumion_hw.cli.numbers import SEED
from lumion_hw.cli.output import note
from lumion_hw.cli.outputs import force_option, out_option

_ON_TCP = (
    *("lumion-mesh", "smartlight-line-server"),
    *("keysight-n77xx", "keysight-816x", "santec-mpm", "keysight-laser", "santec-tsl"),
    *("keysight-n7785c", "novoptel-pm1000"),
)


@click.command()
@click.argument("file", metavar="BENCH")
@out_option("JSON file for the addresses, by device name.", "--endpoints")
@force_option
@click.option("--seed", default=0, show_default=True, type=SEED, help="Seed of everything random.")
@click.option("--tcp-only", is_flag=True, help="No ptys: serial devices on TCP as well.")
@click.option("--cold", is_flag=True, help="Modules start up as after power-on; otherwise they are warm.")
def emulate(file: str, endpoints: Path | None, force: bool, seed: int, tcp_only: bool, cold: bool) -> None:
    """Serve every device of BENCH on loopback until SIGTERM or Ctrl-C.

    Controllers, servers and meters listen on TCP, serial instruments on ptys. The endpoints file holds the address of
    each device, to be opened with `Bench.open(file, addresses=...)` or `--endpoints`.
    """
    from lumion_hw.bench.bench import load
    from lumion_hw.bench.emulated import emulated_bench
    from lumion_hw.clock import SystemClock
    from lumion_hw.emulator.server import EmulatorServer
    from lumion_hw.files.writing import check_target, over, write_file
    from lumion_hw.mesh.scattering import Solver

    if endpoints is not None:
        check_target(endpoints, "the endpoints file", over(force))
    model = load(file)
    clock = SystemClock()
    bench = emulated_bench(model, clock, seed, warm=not cold)
    # The first light loads the sparse solver, which takes longer than a host waits for a module: let it be now.
    cells = bench.world.cells()
    Solver(bench.world.mesh).solve(cells, cells.reference_hz, bench.world.mesh.fibre_ports[:1])
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="lumion-") as directory:
        server = EmulatorServer(clock)
        try:
            addresses = {}
            for name, device in bench.devices.items():
                if tcp_only or getattr(model.devices[name], "kind", "") in _ON_TCP:
                    addresses[name] = server.add_tcp(device)
                else:
                    addresses[name] = server.add_pty(device, Path(directory) / name)
            document = json.dumps(addresses, indent=1) + "\n"
            if endpoints is None:
                click.echo(document, nl=False)
            else:
                write_file(endpoints, "the endpoints file", document, over(force))
            note(f"{model.name}: {len(addresses)} devices, seed {seed}; Ctrl-C or SIGTERM ends")
            server.run(stop)
        finally:
            server.close()
