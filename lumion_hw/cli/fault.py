"""``lumion fault``: inject and clear scripted faults of an emulated bench that another process runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.common.opening import ENDPOINTS_HELP, addresses_of_emulator, served_connection, served_option
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, json_option
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.remote.emulated_faults import EmulatedFaults

_ACTIONS = ("inject", "clear", "list")


@click.command()
@click.argument("file", metavar="BENCH")
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("device", metavar="[DEVICE]", required=False)
@click.argument("fault", metavar="[FAULT]", required=False)
@click.argument("arguments", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--endpoints", type=click.Path(dir_okay=False), help=ENDPOINTS_HELP)
@served_option
@json_option
def fault(
    file: str,
    action: str,
    device: str | None,
    fault: str | None,
    arguments: tuple[str, ...],
    endpoints: str | None,
    served: str | None,
    as_json: bool,
) -> None:
    """Inject, clear or list scripted faults of BENCH, which `lumion emulate` or `lumion serve --emulate` runs.

    DEVICE is a device of the bench file, or `bench` for faults of the bench as a whole. docs/faults.md lists all faults
    with their arguments. Lists are separated by commas; a function of time is given by pairs time:value. Real benches
    have no such faults: `lumion faults` lists and clears the latched faults of a mesh controller.

    \b
    lumion fault lumion-prototype --endpoints e.json list mesh0
    lumion fault lumion-prototype --endpoints e.json inject mesh0 trip source=8
    lumion fault lumion-prototype --endpoints e.json clear mesh0 trip
    lumion fault lumion-prototype --endpoints e.json inject bench kill_modules modules=sfp-s0n0,sfp-s0n1
    """
    if action == "list" and (fault or arguments):
        raise click.UsageError("list takes a DEVICE only.")
    if action != "list" and not (device and fault):
        raise click.UsageError(f"{action} needs a DEVICE and a FAULT.")
    with _faults_of(file, endpoints, served) as faults:
        if action == "list":
            _list(faults, device, as_json)
            return
        request = faults.inject if action == "inject" else faults.clear
        request(str(device), str(fault), **dict(map(_parse, arguments)))
        active = faults.active()
    if as_json:
        echo_json({"active": active})
    else:
        echo_text(f"{'injected' if action == 'inject' else 'cleared'}: {device} {fault}; {_summary(active)}")


@contextlib.contextmanager
def _faults_of(file: str, endpoints: str | None, served: str | None) -> Iterator[EmulatedFaults]:
    from lumion_hw.bench.bench import load, no_faults
    from lumion_hw.remote.emulated_faults import CONTROL, EmulatedFaults, FaultPortClient

    if endpoints and served:
        raise ConfigError("--endpoints and --served cannot be combined", hint="Leave one of them out.")
    model = load(file)
    if not served:
        addresses = addresses_of_emulator(endpoints) if endpoints else {}
        if CONTROL not in addresses:
            raise no_faults(model.name)
        if not addresses.keys() - {CONTROL} <= model.devices.keys():
            raise ConfigError(f"{endpoints} is not of bench {model.name}", hint="Give the bench file of its emulator.")
        yield EmulatedFaults(FaultPortClient(addresses[CONTROL]))
        return
    with served_connection(served, model) as connection:
        yield connection.emulated_faults()


def _parse(argument: str) -> tuple[str, str]:
    name, equals, value = argument.partition("=")
    if not (name and equals):
        raise click.UsageError(f"{argument!r} is not an argument of a fault; give NAME=VALUE, such as port=5.")
    return name, value


def _list(faults: EmulatedFaults, device: str | None, as_json: bool) -> None:
    rows, active = faults.list_faults(device or "bench"), faults.active()
    if as_json:
        echo_json({"faults": rows, "active": active})
        return
    table = [
        (row["fault"], row["arguments"] or "-", "yes" if row["can_clear"] else "no", row["effect"]) for row in rows
    ]
    echo_table(f"Faults of {device or 'bench'}", ("fault", "arguments", "can be cleared", "what happens"), table)
    echo_text(_summary(active))


def _summary(active: list[dict[str, Any]]) -> str:
    texts = [
        " ".join([each["target"], each["fault"], *(f"{name}={value}" for name, value in each["arguments"].items())])
        + ("" if each["can_clear"] else " (until the emulation ends)")
        for each in active
    ]
    return f"active faults: {'; '.join(texts) or 'none'}"
