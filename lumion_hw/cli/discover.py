"""``lumion discover``: find and identify instruments, and draft a bench file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from lumion_hw.cli.common.output import echo_json, echo_table, json_option, note
from lumion_hw.cli.common.outputs import out_option


@click.command()
@click.option("--host", multiple=True, metavar="HOST[:PORT]", help="Query this host; the default port is 5025.")
@click.option(
    "--serial",
    "ports",
    multiple=True,
    metavar="PORT",
    help="Query this serial port; append ?baud=N to fix the baud rate.",
)
@click.option("--visa", is_flag=True, help="Query every resource that VISA lists.")
@out_option("Draft of a bench file to write.", "-o", "--output")
@json_option
def discover(host: tuple[str, ...], ports: tuple[str, ...], visa: bool, output: Path | None, as_json: bool) -> None:
    """Find and identify instruments at the given hosts, serial ports or VISA resources.

    Only harmless queries are sent, and only to the given addresses: an unknown command could make an instrument move.
    Without options it lists the serial ports of this computer and sends nothing.
    """
    from lumion_hw.bench.discovery import discover as query, draft_bench_file, serial_ports, visa_resources
    from lumion_hw.bench.file.known_kinds import all_kinds
    from lumion_hw.clock import SystemClock
    from lumion_hw.files.writing import check_target, write_file

    if output:
        check_target(output, "the draft", overwrite="nothing")
    addresses = [f"tcp://{name}" for name in host] + [f"serial://{port}" for port in ports]
    addresses += [f"visa://{resource}" for resource in visa_resources()] if visa else []
    if not addresses:
        listed = serial_ports()
        if as_json:
            echo_json({"serial_ports": [{"port": port, "description": text} for port, text in listed]})
        else:
            echo_table("Serial ports (not queried)", ("port", "description"), listed)
            note("To query instruments, give --host, --serial or --visa.")
        return
    for unusable in all_kinds()[1]:
        note(f"skipped: {unusable}")
    instruments, failures = query(addresses, SystemClock())
    if as_json:
        failed = {address: str(error) for address, error in failures.items()}
        echo_json({"found": [asdict(item) for item in instruments], "unreachable": failed})
    else:
        echo_table("Found", ("address", "kind", "identity"), [(i.address, i.kind, i.identity) for i in instruments])
        for address, error in failures.items():
            note(f"{address}: {error}")
        if not instruments:
            note("No instrument answered.")
    if output:
        write_file(output, "the draft", draft_bench_file(instruments), overwrite="nothing")
        note(f"{output}: draft written; add the sections 'mesh' and 'wiring'")
