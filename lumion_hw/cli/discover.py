"""``lumion discover``: what answers at the places named, and a draft of a bench file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from lumion_hw.cli.common.output import echo_json, echo_table, json_option, note
from lumion_hw.cli.common.outputs import out_option


@click.command()
@click.option("--host", multiple=True, metavar="HOST[:PORT]", help="Ask at this host; port 5025 if none is given.")
@click.option(
    "--serial", "ports", multiple=True, metavar="PORT", help="Ask at this serial port; ?baud=N fixes its rate."
)
@click.option("--visa", is_flag=True, help="Ask every resource that VISA lists.")
@out_option("Write a draft of a bench file here.", "-o", "--output")
@json_option
def discover(host: tuple[str, ...], ports: tuple[str, ...], visa: bool, output: Path | None, as_json: bool) -> None:
    """Find and identify instruments at the places named.

    Only harmless questions are asked, and only where you say: an instrument may move on a stray line. Without any
    option the serial ports of this computer are listed, and nothing is sent.
    """
    from lumion_hw.bench.discovery import discover as ask, draft, serial_ports, visa_resources
    from lumion_hw.bench.file.known_kinds import all_kinds
    from lumion_hw.clock import SystemClock
    from lumion_hw.files.writing import check_target, write_file

    if output:
        check_target(output, "the draft", over="nothing")
    places = [f"tcp://{name}" for name in host] + [f"serial://{port}" for port in ports]
    places += [f"visa://{resource}" for resource in visa_resources()] if visa else []
    if not places:
        listed = serial_ports()
        if as_json:
            echo_json({"serial_ports": [{"port": port, "description": text} for port, text in listed]})
        else:
            echo_table("Serial ports, not asked", ("port", "description"), listed)
            note("Name places to ask: --host, --serial or --visa.")
        return
    for unusable in all_kinds()[1]:
        note(f"not asked for: {unusable}")
    found, failures = ask(places, SystemClock())
    if as_json:
        failed = {place: str(error) for place, error in failures.items()}
        echo_json({"found": [asdict(item) for item in found], "unreachable": failed})
    else:
        echo_table("Found", ("address", "kind", "identity"), [(i.address, i.kind, i.identity) for i in found])
        for place, error in failures.items():
            note(f"{place}: {error}")
        if not found:
            note("Nothing answered.")
    if output:
        write_file(output, "the draft", draft(found), over="nothing")
        note(f"{output}: a draft; mesh and wiring are still to be written")
