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
from lumion_hw.files.own_files import CREATOR

if TYPE_CHECKING:
    from lumion_hw.circuits.lock import LockOwner
    from lumion_hw.fabric import FabricManager
    from lumion_hw.fabric.requests import FabricRequest, Outcome

_RUN = "lumion fabric run"
_MANAGERS = (_RUN, "lumion serve")
"""Programs that manage a fabric and accept requests."""
_ACCEPT_TIMEOUT_S = 30.0
"""Longest wait in s until the fabric manager accepts a request."""
_STATUS_TIMEOUT_S = 3.0
"""Longest wait in s for the status of a manager, which may be busy with a recovery."""
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
    rebuild, restore or go, then the job and its members. If it fails or hangs, the job is reported as not resumed;
    `lumion fabric recover` calls it again.
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
@click.argument("unit")
@click.option("--because", "reason", default="drained by hand", help="Reason to record in the history.")
def drain(target: BenchTarget, unit: str, reason: str) -> None:
    """Take the healthy UNIT (a server or accelerator) out of service; a spare takes its place first.

    If no spare can take its place, UNIT stays in service and the exit code is 3. `lumion fabric repaired` returns it to
    service. If a manager is running, the command sends it the request and waits for the result.
    """
    _request_or_perform(target, "drain", unit, reason)


@fabric.command()
@target_options
@click.argument("unit")
def repaired(target: BenchTarget, unit: str) -> None:
    """Return UNIT (a repaired or drained server or accelerator) to service, as a spare or for a refused job.

    If a manager is running, the command sends it the request and waits for the result. The command succeeds when every
    circuit of the jobs carries light. It prints whether UNIT is a warm or a cold spare now, and why it is cold.
    """
    _request_or_perform(target, "repaired", unit)


@fabric.command()
@target_options
@click.argument("fault")
def clear(target: BenchTarget, fault: str) -> None:
    """Clear the latched FAULT (name or ID) of the mesh controller, and set up the circuits of the jobs again.

    Remove the cause first. If a manager is running, the command sends it the request and waits for the result. The
    command succeeds when every circuit of the jobs carries light.
    """
    _request_or_perform(target, "clear", fault)


@fabric.command()
@target_options
@click.option("--repaired", "unit", metavar="UNIT", hidden=True)  # in scripts from before `lumion fabric repaired`
def recover(target: BenchTarget, unit: str | None) -> None:
    """Finish an interrupted recovery, and connect missing circuits of the jobs.

    If a manager is running, the command sends it the request and waits for the result. The command succeeds when every
    circuit of the jobs carries light.
    """
    _request_or_perform(target, "recover" if unit is None else "repaired", unit or "")


@fabric.command()
@target_options
def status(target: BenchTarget) -> None:
    """Show jobs, servers, spares, recovery plans, alarms and the last recovery. Uses no device.

    A running manager is asked for its status. Without a manager, the command reads the journals, and no plans are
    ready. With --json the command prints the document that the server, its page and its process variables show.
    """
    with target.directory() as directory:
        document = _status_document(target, directory)
    if target.as_json:
        echo_json(document)
    else:
        _print_status(document)


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
            verdict = entry["state"]["open"] if event == "begun" else {}
            subject = entry.get("failed") or entry.get("unit") or entry.get("circuit") or verdict.get("name")
            reason = entry.get("words") or verdict.get("words")
            rows.append((entry["utc"], event, subject, entry.get("spare"), spans or reason))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"entry {entry.get('n')} of the fabric journal was written by another version ({error!r})",
                hint="Use --json, or the version that wrote the journal.",
            ) from error
    echo_table("History", ("time", "event", "unit", "spare", "times in ms since the fault, or reason"), rows)


@fabric.command()
@target_options
@click.option("--job", metavar="NAME", help="Job of the bench file.  [default: its only job]")
@click.option(
    "--dumps",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory with SERVER.xml, the topology that NCCL wrote on each server with NCCL_TOPO_DUMP_FILE.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory to write: hostfile, SERVER.env and, with --dumps, SERVER.xml.",
)
def nccl(target: BenchTarget, job: str | None, dumps: Path | None, out: Path | None) -> None:
    """Print the rank order of a connected job for NCCL, and the environment of its ranks. Uses no device.

    Neighbouring ranks have circuits in both directions. With --dumps, the topology file of each server has only the
    network interfaces that carry circuits. With --json everything is one document.
    """
    document = _nccl_document(target, job, dumps, out)
    if target.as_json:
        echo_json(document)
        return
    environment = document["environment"]
    rows = [
        (rank, unit, host, " ".join(f"{name}={value}" for name, value in environment[host].items()))
        for rank, (unit, host) in enumerate(zip(document["ranks"], document["hosts"], strict=True))
    ]
    echo_table("Ranks", ("rank", "member", "server", "environment"), rows)


def _nccl_document(target: BenchTarget, name: str | None, dumps: Path | None, out: Path | None) -> dict[str, Any]:
    from lumion_hw.bench.bench import load
    from lumion_hw.fabric import nccl_setup, nccl_topology
    from lumion_hw.files.reading import read_file
    from lumion_hw.files.writing import write_file

    with target.directory() as directory:
        status = _status_document(target, directory)
    jobs = {job["name"]: job for job in status["jobs"]}
    if name is None and len(jobs) == 1:
        (name,) = jobs
    if name is None or name not in jobs:
        asked = "no job was chosen" if name is None else f"there is no job {name!r}"
        raise ConfigError(
            asked, hint=f"Give --job with one of: {', '.join(jobs) or 'none, the bench file has no jobs'}."
        )
    setup = nccl_setup(load(target.file), name, jobs[name]["units"], status["circuits"])
    topologies = (
        {}
        if dumps is None
        else {
            server: nccl_topology(read_file(dumps / f"{server}.xml", "NCCL topology"), server, setup.interfaces[server])
            for server in setup.servers
        }
    )
    folder = out or Path()
    environment = {
        server: setup.environment(server, (folder / f"{server}.xml").absolute() if server in topologies else None)
        for server in setup.servers
    }
    if out is not None:
        write_file(out / "hostfile", "hostfile", setup.hostfile())
        for server, variables in environment.items():
            lines = "".join(f"{variable}={value}\n" for variable, value in variables.items())
            write_file(out / f"{server}.env", "environment", f"# {CREATOR}\n{lines}")
        for server, text in topologies.items():
            write_file(out / f"{server}.xml", "NCCL topology", text)
    return {
        "job": setup.job,
        "ranks": setup.ranks,
        "hosts": setup.hosts,
        "environment": environment,
        "topologies": topologies,
    }


@contextlib.contextmanager
def _managed(target: BenchTarget, program: str, hook: tuple[str, ...] = ()) -> Iterator[FabricManager]:
    from lumion_hw.fabric import FabricJournal, FabricManager
    from lumion_hw.fabric.hooks import CommandHooks

    with target.opened(program) as service:
        directory = service.journal.path.parent
        bench = service.setup.bench
        bench.events.write_to(directory / "events.jsonl")
        hooks = CommandHooks(hook, bench.model.fabric.hook_timeout_s) if hook else None
        with (
            contextlib.closing(hooks) if hooks else contextlib.nullcontext(),
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
            outcome = _send_request(directory, request, owner, _ACCEPT_TIMEOUT_S)
            if target.as_json:
                echo_json(outcome.status)
            else:
                echo_text(f"done by {owner.name} ({owner.program}): every circuit of the jobs carries light")
                _print_repaired(request, outcome.status)
            return
    with _managed(target, "lumion fabric") as manager:
        if action not in ("recover", "clear"):
            manager.begin()
        document = request.perform(manager)
    if target.as_json:
        echo_json(document)
    else:
        echo_text(f"connected: {', '.join(document['circuits']) or 'none'}")
        _print_repaired(request, document)


def _print_repaired(request: FabricRequest, status: Mapping[str, Any]) -> None:
    from lumion_hw.fabric.status import repaired_text
    from lumion_hw.serving.headline import short_reason

    if request.action == "repaired":
        echo_text(short_reason(repaired_text(status, request.unit)))


def _send_request(directory: Path, request: FabricRequest, manager: LockOwner, timeout_s: float) -> Outcome:
    from lumion_hw.circuits import lock_owner
    from lumion_hw.fabric.requests import RequestBox

    box = RequestBox(directory)
    number, since_s, is_accepted = box.send(request, manager), time.monotonic(), False
    try:
        while (outcome := box.outcome(number)) is None:
            is_late = time.monotonic() > since_s + timeout_s
            if (is_late or lock_owner(directory) != manager) and not is_accepted:
                if box.withdraw(number):
                    raise BusyError(
                        f"{manager.name} ({manager.program}) did not accept the request in {timeout_s:.0f} s",
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
    return outcome


def _status_document(target: BenchTarget, directory: Path) -> Mapping[str, Any]:
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import lock_owner, read_state
    from lumion_hw.fabric import fabric_status, last_recovery, read_fabric
    from lumion_hw.fabric.requests import FabricRequest

    model, owner = load(target.file), lock_owner(directory)
    if not model.servers:
        raise ConfigError(f"{target.file} has no servers", hint="Add 'servers' and 'fabric' to the bench file.")
    if owner is not None and owner.program in _MANAGERS:
        try:
            return _send_request(directory, FabricRequest("status"), owner, _STATUS_TIMEOUT_S).status
        except BusyError:
            note(f"{owner.name} ({owner.program}) is busy, so this is the state of its journals")
    (state, entries), circuit_state = read_fabric(directory), read_state(directory)[0]
    if owner is None and circuit_state.record is None:
        note(f"no program has driven this bench with the state in {directory}. {_SAME_STATE}")
    circuits = [circuit.name for circuit in circuit_state.circuits]
    status = fabric_status(model, state, circuits, recovery=last_recovery(entries))
    return {} if status is None else status.document()


def _print_status(status: Mapping[str, Any]) -> None:
    rows = [
        (each["severity"].upper(), each["subject"], each["condition"], _table_reason(each)) for each in status["alarms"]
    ]
    echo_table("Alarms", ("severity", "subject", "condition", "reason"), rows)
    jobs = [(job["name"], " ".join(job["units"]), job["condition"]) for job in status["jobs"]]
    echo_table("Jobs", ("job", "members", "condition"), jobs)
    units = [
        (
            unit["name"],
            unit["condition"],
            unit["job"] or None,
            unit["replaces"] or None,
            " ".join(unit["replacements"]) or None,
            _table_reason(unit) or None,
        )
        for unit in status["units"]
    ]
    echo_table("Servers", ("unit", "condition", "job", "in place of", "replaced by", "reason"), units)
    recovery = status["recovery"]
    if recovery is not None:
        replaced = f"{recovery['failed']} replaced by {recovery['spare']}"
        what = replaced if recovery["spare"] else f"{recovery['circuit']} over another path"
        spans = " ".join(f"{span['name']} {span['at_ms']:.1f}" for span in recovery["spans"])
        echo_text(f"last recovery: {what}; times in ms since the fault: {spans or 'not recorded'}")
    plans = "recovery plans are ready" if status["plans_ready"] else "no recovery plans are ready"
    counts = f"{status['fades']} fades, {status['false_alarms']} false alarms"
    echo_text(f"{status['manager'] or 'no manager maintains the jobs'}; {plans}; {counts}")
    if status["interrupted"] and not status["manager"]:
        note("a recovery was interrupted; finish it with `lumion fabric recover`")


def _table_reason(row: Mapping[str, Any]) -> str:
    """Return the reason of an alarm or unit; that of a cold spare without details of routing and advice."""
    from lumion_hw.serving.headline import short_reason

    reason: str = row["reason"]
    return short_reason(reason) if row["condition"].startswith("cold") else reason


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
