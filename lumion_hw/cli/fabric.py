"""``lumion fabric``: keep the jobs of a bench connected, and replace failed servers by spares."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.circuits import BenchTarget, target_options
from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import MAX_DURATION_D, Duration
from lumion_hw.cli.common.output import echo_json, echo_table, echo_text, note
from lumion_hw.errors import BusyError, ConfigError, LumionError

if TYPE_CHECKING:
    from lumion_hw.circuits.lock import LockOwner
    from lumion_hw.fabric import FabricManager, FabricState
    from lumion_hw.fabric.requests import FabricRequest

_RUN = "lumion fabric run"
_MANAGERS = (_RUN, "lumion serve")
"""Programs that manage a fabric and accept requests."""
_ACCEPT_TIMEOUT_S = 30.0
"""Longest wait in s until the fabric manager accepts a request."""
_POLL_PERIOD_S = 0.05
_FAILED = 3
_SAME_STATE = (
    "Give the same --endpoints or --state as the fabric manager (`lumion fabric run` or `lumion serve`); "
    "`lumion serve --emulate` needs --state, too."
)


@click.group(cls=NamedGroup)
def fabric() -> None:
    """Keep the jobs of a bench connected, and replace failed servers by spares.

    `lumion fabric run BENCH` connects the jobs of the bench file, prepares the spares, watches for failures and
    recovers from them. The other commands read its journal or send it requests.
    """


@fabric.command()
@target_options
@click.option("--for", "for_s", type=Duration(), help=f"Run time, at most {MAX_DURATION_D}d.  [default: until Ctrl-C]")
@click.option(
    "--hook",
    "hook",
    multiple=True,
    metavar="WORD",
    help="Program to call when a job's circuits change. Give --hook again for each argument of the program.",
)
def run(target: BenchTarget, for_s: float | None, hook: tuple[str, ...]) -> None:
    """Run the fabric manager of BENCH and print its events; with --json as one JSON document per line.

    If a manager is killed, the next one continues from its journals. The program of --hook is called with stop,
    rebuild, restore or go, then the job and its members.
    """
    from lumion_hw.bench.bench import load

    if not load(target.file).fabric.all_jobs:
        raise ConfigError(
            f"{target.file} has no jobs to keep connected",
            hint="Add 'servers', and 'fabric' with 'pairs' or 'jobs', to the bench file.",
        )
    with _managed(target, _RUN, hook) as manager:
        finished = manager.begin()
        if finished is not None:
            note(f"finished the recovery of an earlier manager: {finished.failed} replaced by {finished.spare}")
        with _signals_end_the_run() as is_over:  # Ctrl-C is the normal end, from the moment "watching" is printed
            _event_printer(target.as_json)("watching", _summary(manager))
            _run(manager, for_s, is_over)
        state = manager.state
    if state.refused:
        note(f"jobs without circuits: {', '.join(state.refused)}")
        click.get_current_context().exit(_FAILED)


@contextlib.contextmanager
def _signals_end_the_run() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM has arrived; a second signal raises an exception."""
    received: list[int] = []
    usual: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def note_signal(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            usual[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(action := signal.getsignal(number)):  # a signal that is ignored stays so
                usual[number] = action
                signal.signal(number, note_signal)
    try:
        yield lambda: bool(received)
    finally:
        for signal_number, action in usual.items():
            signal.signal(signal_number, action)
    if signal.SIGTERM in received:
        usual[signal.SIGTERM](signal.SIGTERM, None)


def _run(manager: FabricManager, for_s: float | None, is_over: Callable[[], bool]) -> None:
    from lumion_hw.fabric.requests import RequestBox

    service = manager.service
    box, owner = RequestBox(service.journal.path.parent), service.lock.owner
    manager.run(
        for_s, is_over=is_over, between_steps=lambda: box.serve(owner, lambda request: request.perform(manager))
    )


@fabric.command()
@target_options
@click.argument("unit")
@click.option("--because", "reason", default="declared by hand", help="Reason to record in the history.")
def fail(target: BenchTarget, unit: str, reason: str) -> None:
    """Take UNIT (a server or accelerator) out of service and replace it by a spare.

    If a manager is running, the command sends it the request and waits for the result.
    """
    _request_or_perform(target, "fail", unit, reason)


@fabric.command()
@target_options
@click.option("--repaired", "unit", metavar="UNIT", help="Server or accelerator that was repaired.")
def recover(target: BenchTarget, unit: str | None) -> None:
    """Finish an interrupted recovery, connect missing circuits, return repaired servers or accelerators to service.

    If a manager is running, the command sends it the request and waits for the result. The command succeeds when every
    circuit of the jobs carries light.
    """
    _request_or_perform(target, "recover" if unit is None else "repaired", unit or "")


@fabric.command()
@target_options
def status(target: BenchTarget) -> None:
    """Show jobs, spares in use, failed servers and accelerators, and jobs without circuits. Uses no device."""
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import lock_owner, read_state
    from lumion_hw.fabric import read_fabric
    from lumion_hw.fabric.decisions import free_spares

    model = load(target.file)
    with target.directory() as directory:
        state, entries = read_fabric(directory)
        circuits, _ = read_state(directory)
        owner = lock_owner(directory)
        if owner is None and circuits.record is None:
            note(f"no program has driven this bench with the state in {directory}. {_SAME_STATE}")
    connected = {circuit.name for circuit in circuits.circuits}
    if target.as_json:
        names = [circuit.name for circuit in circuits.circuits]
        document = {"jobs": _job_rows(model, state, connected), "standing": names}
        echo_json({**document, "state": state, "held_by": None if owner is None else owner.name})
        return
    echo_table(
        "Jobs",
        ("job", "members", "state"),
        [(j["job"], " ".join(j["members"]), j["state"]) for j in _job_rows(model, state, connected)],
    )
    if state.failed:
        echo_table("Failed", ("unit", "reason"), list(state.failed.items()))
    requests = [circuit.request for circuit in circuits.circuits]
    loops = {request.source for request in requests if request.source == request.target}
    spares = dict.fromkeys((*model.fabric.spares, *free_spares(model, state)))  # repaired members are spares, too
    rows = [(name, _spare_state(model, state, name, loops)) for name in spares]
    if rows:
        echo_table("Spares", ("spare", "state"), rows)
    manager = "no manager is running" if owner is None else f"in use by {owner.name}"
    counts = f"{len(entries)} journal entries, {state.fades} fades, {state.false_alarms} false alarms"
    echo_text(f"{manager}; {counts}")
    if state.open is not None:
        note("a recovery was interrupted; finish it with `lumion fabric recover`")


@fabric.command()
@target_options
def history(target: BenchTarget) -> None:
    """List the failures and recoveries, with the time of each step. Uses no device."""
    from lumion_hw.fabric import read_fabric

    with target.directory() as directory:
        entries = read_fabric(directory)[1]
    if target.as_json:
        echo_json({"entries": [{key: value for key, value in entry.items() if key != "state"} for entry in entries]})
        return
    rows: list[tuple[object, ...]] = []
    for entry in entries:
        try:
            spans = " ".join(f"{span['name']} {span['at_ms']:.1f}" for span in entry.get("spans", []))
            event = entry.get("outcome") or entry["entry"]
            subject = entry.get("failed") or entry.get("unit") or entry.get("circuit")
            rows.append((entry["utc"], event, subject, entry.get("spare"), spans or entry.get("words")))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"entry {entry.get('n')} of the fabric journal was written by another version ({error!r})",
                hint="Use --json, or the version that wrote the journal.",
            ) from error
    echo_table("History", ("time", "event", "unit", "spare", "times in ms since the fault, or reason"), rows)


@contextlib.contextmanager
def _managed(target: BenchTarget, program: str, hook: tuple[str, ...] = ()) -> Iterator[FabricManager]:
    from lumion_hw.fabric import FabricJournal, FabricManager
    from lumion_hw.fabric.hooks import CommandHooks

    with target.opened(program) as service:
        directory = service.journal.path.parent
        bench = service.setup.bench
        bench.events.write_to(directory / "events.jsonl")
        hooks = CommandHooks(hook) if hook else None
        with (
            FabricJournal(directory, bench.model.name) as journal,
            FabricManager(service, journal, hooks=hooks, on_event=_event_printer(target.as_json)) as manager,
        ):
            yield manager


def _request_or_perform(target: BenchTarget, action: str, unit: str, reason: str = "declared by hand") -> None:
    from lumion_hw.circuits import lock_owner, read_state
    from lumion_hw.fabric.requests import FabricRequest

    request = FabricRequest(action, unit, reason)
    with target.directory() as directory:
        owner = lock_owner(directory)
        if owner is None and target.record is None and read_state(directory)[0].record is None:
            raise ConfigError(
                f"no fabric manager runs with the state in {directory}, and no calibration record is known there",
                hint=f"{_SAME_STATE} To change the circuits without a manager, give --record RECORD.",
            )
        if owner is not None and owner.program in _MANAGERS and target.take_over is None:
            _send_request(directory, request, owner)
            echo_text(f"done by {owner.name} ({owner.program}): every circuit of the jobs carries light")
            return
    with _managed(target, "lumion fabric") as manager:
        manager.begin()
        if action != "recover":
            request.perform(manager)
        summary, refused = _summary(manager), manager.state.refused
    if target.as_json:
        echo_json(summary)
    else:
        echo_text(f"connected: {', '.join(summary['standing']) or 'none'}")
    if refused:
        for job, text in refused.items():
            note(f"{job} has no circuits: {text}")
        click.get_current_context().exit(_FAILED)


def _send_request(directory: Path, request: FabricRequest, manager: LockOwner) -> None:
    from lumion_hw.circuits import lock_owner
    from lumion_hw.fabric.requests import RequestBox

    box = RequestBox(directory)
    number, since_s, is_accepted = box.send(request, manager), time.monotonic(), False
    try:
        while (outcome := box.outcome(number)) is None:
            is_late = time.monotonic() > since_s + _ACCEPT_TIMEOUT_S
            if (is_late or lock_owner(directory) != manager) and not is_accepted:
                if box.withdraw(number):
                    raise BusyError(
                        f"{manager.name} ({manager.program}) did not accept the request in {_ACCEPT_TIMEOUT_S:.0f} s",
                        hint="It is probably busy with other jobs. The request was withdrawn and nothing changed. "
                        "Try again later.",
                    )
                is_accepted = True
            if is_accepted and lock_owner(directory) != manager:
                raise LumionError(
                    f"{manager.name} ended while it worked on the request",
                    hint="`lumion fabric status BENCH` shows the current state.",
                )
            time.sleep(_POLL_PERIOD_S)
    except BaseException:
        box.withdraw(number)
        raise
    if outcome.error:
        error = LumionError(outcome.error)
        error.exit_code = outcome.exit_code
        raise error


def _event_printer(as_json: bool) -> Any:
    def print_event(event: str, data: Mapping[str, Any]) -> None:
        if as_json:
            echo_json({"event": event, **data}, single_line=True)
        elif event == "span":
            times = f"+{data['bench_ms']:.2f} ms  at {data['at_ms']:.2f} ms  CPU {data['cpu_ms']:.1f} ms"
            echo_text(f"  {data['name']:>13}  {times}")
        else:
            listed = ", ".join(f"{name}: {_format_value(value)}" for name, value in data.items() if name != "spans")
            echo_text(f"{event}: {data.get('words') or listed}")

    return print_event


def _format_value(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_format_value(item)}" for name, item in value.items()) or "none"
    return str(value)


def _summary(manager: FabricManager) -> dict[str, Any]:
    return {
        "jobs": {job.name: list(manager.members(job)) for job in manager.jobs},
        "standing": [circuit.name for circuit in manager.service.state.circuits],
        "spares": list(manager.spares),
        "cold": manager.standby.cold,
        "failed": dict(manager.state.failed),
    }


def _job_state(model: Any, job: Any, state: FabricState, connected: set[str]) -> str:
    from lumion_hw.fabric import job_requests

    if job.name in state.refused:
        return f"refused: {state.refused[job.name]}"
    needed = {f"{request.source}:{request.target}" for request in job_requests(model, job, state.places)}
    return "connected" if needed <= connected else "not connected"


def _job_rows(model: Any, state: FabricState, connected: set[str]) -> list[dict[str, Any]]:
    return [
        {
            "job": job.name,
            "members": [state.unit_at(member) for member in job.members],
            "state": _job_state(model, job, state, connected),
        }
        for job in model.fabric.all_jobs
    ]


def _spare_state(model: Any, state: FabricState, name: str, loops: set[str]) -> str:
    from lumion_hw.fabric import find_unit

    if name in state.failed:
        return "failed"
    if name in state.places.values():
        return "in use"
    if set(find_unit(model, name).nics) <= loops:
        return "on standby"
    return f"cold: {state.cold[name]}" if name in state.cold else "not prepared"
