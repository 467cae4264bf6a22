"""``lumion serve``: one process owns a bench and serves it to several users and programs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.circuits import BenchTarget, note_uncertified_record
from lumion_hw.cli.common.joined_file import ends_of_bench, joined_option
from lumion_hw.cli.common.numbers import SEED, Number
from lumion_hw.cli.common.opening import ENDPOINTS_HELP, LEAVE_ON_HELP, RECORD_HELP, TAKE_OVER_HELP, open_bench
from lumion_hw.cli.common.output import echo_json, echo_text, json_option, note
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench
    from lumion_hw.cli.common.emulator_process import EmulatorProcess
    from lumion_hw.joined import JoinedWatch
    from lumion_hw.serving.owner import BenchOwner

_PORT = click.IntRange(0, 65535)
_POLL_PERIOD_S = 0.1
END_S = 4.5
"""Longest time in s from SIGTERM or Ctrl-C to the end of the process."""
_SHUTDOWN_NOTICE_S = 1.0
"""Time in s for which web pages and process variables show the reason before the server ends."""


@click.command()
@click.argument("file", metavar="BENCH")
@click.option("--emulate", is_flag=True, help="Emulate the bench in a second process, which ends with this one.")
@click.option("--seed", default=0, show_default=True, type=SEED, help="Random seed.")
@click.option("--endpoints", type=click.Path(dir_okay=False), help=ENDPOINTS_HELP)
@click.option("--record", metavar="RECORD", help=RECORD_HELP)
@click.option("--state", metavar="DIR", help="Directory for journals and event logs.  [default: one per user]")
@click.option("--take-over", metavar="USER@HOST", help=TAKE_OVER_HELP)
@click.option(
    "--leave-on",
    "leave_on_s",
    type=Number("s", 0.0, 3600.0),
    help=LEAVE_ON_HELP + "  [default: as the bench file says]",
)
@click.option("--pva", is_flag=True, help="Serve the bench over EPICS PV Access.")
@click.option(
    "--pva-port", type=_PORT, default=5075, show_default=True, help="TCP port for PV Access; 0: any free port."
)
@click.option("--page", is_flag=True, help="Serve a web page, and metrics for Prometheus.")
@click.option(
    "--page-port", type=_PORT, default=5080, show_default=True, help="TCP port for the page; 0: any free port."
)
@click.option(
    "--page-writes",
    is_flag=True,
    help="Let web pages change settings. Prints a token that the user types into the page; the page also needs the "
    "lease.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--allow",
    multiple=True,
    metavar="ADDRESS",
    help="Remote address or network that may connect, such as 192.0.2.7 or 192.0.2.0/24.",
)
@click.option("--fabric/--no-fabric", default=True, help="Keep the jobs of the bench file connected.  [default: yes]")
@click.option(
    "--when-lost",
    type=click.Choice(["hold", "off"]),
    default="hold",
    show_default=True,
    help="When a client program ends: hold the heaters that it used, or switch off those that no circuit needs.",
)
@joined_option
@click.option(
    "--watch-joined",
    is_flag=True,
    help="Query all benches of --joined every 2 s, and show the circuits over several meshes with their alarms.",
)
@json_option
def serve(
    file: str,
    emulate: bool,
    seed: int,
    endpoints: str | None,
    record: str | None,
    state: str | None,
    take_over: str | None,
    leave_on_s: float | None,
    pva: bool,
    pva_port: int,
    page: bool,
    page_port: int,
    page_writes: bool,
    host: str,
    allow: tuple[str, ...],
    fabric: bool,
    when_lost: str,
    joined: str | None,
    watch_joined: bool,
    as_json: bool,
) -> None:
    """Own BENCH and serve it to several users and programs, until SIGTERM or Ctrl-C.

    The server reads and logs all channels and maintains the circuits. If the bench file has jobs and there is a
    calibration record, it also replaces failed servers. To change anything, a client needs the lease (the exclusive
    right to change settings). Scripts connect with Bench.attach("pva://HOST:PORT"), browsers with http://HOST:PORT/,
    Prometheus with http://HOST:PORT/metrics; docs/serving.md lists the process variables. Without hardware use
    --emulate, which runs on the wall clock.
    """
    ports = _served_ports(pva_port if pva else None, page_port if page else None, page_writes)
    if emulate and endpoints:
        raise ConfigError("--emulate and --endpoints cannot be combined", hint="Leave one of them out.")
    watch = _joined_watch(joined) if watch_joined else None
    with _stop_on_signals() as stop, _emulator(file, emulate, seed, joined) as emulator:
        from lumion_hw.serving.owner import BenchOwner  # a slow import, in parallel with the start of the emulator

        _check(ports, host, allow, page_writes)
        state_directory = state or _state_without_mesh(file, emulate)
        target = BenchTarget(
            file, emulate, seed, endpoints, state_directory, record, take_over, leave_on_s or 0.0, as_json
        )
        with target.directory() as directory:
            owned = BenchOwner.open(
                lambda: _opened(target, emulator, leave_on_s, joined),
                directory,
                record=record,
                take_over=take_over,
                fabric=fabric,
                heaters_off_on_loss=when_lost == "off",
            )
            with owned as owner, contextlib.ExitStack() as servers:
                addresses = _start_serving(servers, owner, ports, host, allow, page_writes)
                if watch is not None:
                    servers.enter_context(watch.running(owner.show_joined))
                _print_addresses(owner, addresses, as_json)
                _serve_until(stop, owner, emulator)
    note("server stopped")


def _served_ports(pva_port: int | None, page_port: int | None, page_writes: bool) -> dict[str, int]:
    ports = {name: port for name, port in (("pva", pva_port), ("page", page_port)) if port is not None}
    if not ports:
        raise ConfigError("neither --pva nor --page is given, so nothing would be served", hint="Give at least one.")
    if page_writes and page_port is None:
        raise ConfigError("--page-writes needs --page", hint="Give --page as well.")
    return ports


def _joined_watch(joined: str | None) -> JoinedWatch:
    from lumion_hw.joined import JoinedWatch, load_joined
    from lumion_hw.remote.pv_names import require_p4p

    if joined is None:
        raise ConfigError("--watch-joined needs --joined", hint="Give the file of joined meshes as well.")
    require_p4p()
    return JoinedWatch(load_joined(joined))


def _state_without_mesh(file: str, emulate: bool) -> str | None:
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits.state import state_directory

    model = load(file)
    if emulate or model.mesh is not None:
        return None
    return str(state_directory(model.name, "instruments"))


def _check(ports: Mapping[str, int], host: str, allow: tuple[str, ...], page_writes: bool) -> None:
    if "pva" in ports:
        from lumion_hw.remote.pv_names import require_p4p
        from lumion_hw.serving.pva import check_listening

        require_p4p()
        check_listening(host, ports["pva"], allow)
    if "page" in ports:
        from lumion_hw.serving.page.server import check_page

        check_page(host, ports["page"], allow, page_writes)


def _start_serving(
    servers: contextlib.ExitStack,
    owner: BenchOwner,
    ports: Mapping[str, int],
    host: str,
    allow: tuple[str, ...],
    page_writes: bool,
) -> dict[str, str]:
    addresses = {}
    if "pva" in ports:
        from lumion_hw.serving.pva import PvaServer

        pva = PvaServer(owner, port=ports["pva"], host=host, allowed=allow)
        addresses["pva"] = servers.enter_context(pva).address
    if "page" in ports:
        from lumion_hw.serving.page.server import PageServer

        page = PageServer(owner, port=ports["page"], host=host, allowed=allow, writes=page_writes)
        addresses["page"] = servers.enter_context(page).address
        if page_writes:
            addresses["page_token"] = page.token
    return addresses


@contextlib.contextmanager
def _emulator(file: str, emulate: bool, seed: int, joined: str | None) -> Iterator[EmulatorProcess | None]:
    if not emulate:
        yield None
        return
    from lumion_hw.cli.common.emulator_process import emulator_process

    with emulator_process(file, seed, joined) as emulator:
        yield emulator


def _opened(
    target: BenchTarget, emulator: EmulatorProcess | None, leave_on_s: float | None, joined: str | None
) -> Bench:
    from lumion_hw.bench.bench import Bench, load

    ends = ends_of_bench(joined, load(target.file))
    if emulator is None:
        return open_bench(
            target.file,
            False,
            target.seed,
            target.endpoints,
            leave_on_s=leave_on_s,
            ends=ends,
            allow_absent_modules=True,
        )
    from lumion_hw.bench.opening import link_to
    from lumion_hw.clock import SystemClock
    from lumion_hw.remote.emulated_faults import CONTROL, EmulatedFaults, FaultPortClient

    model, clock = load(target.file), SystemClock()
    addresses = emulator.addresses()
    return Bench(
        model,
        lambda name, device: link_to(device, addresses[name], clock),
        clock,
        is_emulated_remotely=True,
        faults=EmulatedFaults(FaultPortClient(addresses[CONTROL])),
        ends=ends,
        allow_absent_modules=True,
    )


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that is set by SIGTERM or Ctrl-C; the process ends at most :data:`END_S` later."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def end(*_: object) -> None:
        if not stop.is_set():
            last_resort = threading.Timer(END_S, _exit_immediately)
            last_resort.daemon = True
            last_resort.start()
        stop.set()

    kinds = (signal.SIGTERM, signal.SIGINT)
    before = {kind: signal.signal(kind, end) for kind in kinds}
    try:
        yield stop
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _exit_immediately() -> None:
    """End the process without waiting for threads.

    The watchdog of the mesh controller then switches the heaters off.
    """
    note(
        f"the server did not stop within {END_S:g} s and was ended; the controller's watchdog switches the heaters off"
    )
    os._exit(1)


def _serve_until(stop: threading.Event, owner: BenchOwner, emulator: EmulatorProcess | None) -> None:
    """Wait until the server is stopped. A failure is reported to all clients, then raised."""
    while not stop.wait(_POLL_PERIOD_S):
        failure = None if emulator is None else emulator.failure()
        if failure is not None:
            owner.fail(failure)
        if owner.failure is not None:
            stop.wait(_SHUTDOWN_NOTICE_S)
            raise owner.failure


def _print_addresses(owner: BenchOwner, addresses: dict[str, str], as_json: bool) -> None:
    note_uncertified_record(owner.record)
    state = owner.state
    if as_json:
        echo_json({"bench": state.bench, "emulated": state.is_emulated, **addresses}, single_line=True)
        return
    for name, address in addresses.items():
        echo_text(f"token for writing on the page: {address}" if name == "page_token" else address)
    how = "emulated" if state.is_emulated else "real"
    note(f"{state.bench} ({how}): serving {len(state.points)} readings and settings. Press Ctrl-C to stop.")
