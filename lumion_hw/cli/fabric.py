"""``lumion fabric``: keep the jobs of a bench connected, and replace failed servers by spares."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.cli.circuits import BenchTarget, target_options
from lumion_hw.cli.common.lazy import NamedGroup
from lumion_hw.cli.common.numbers import LONGEST_D, Duration
from lumion_hw.cli.common.output import echo_json, echo_table, note, say
from lumion_hw.errors import BusyError, ConfigError, LumionError

if TYPE_CHECKING:
    from lumion_hw.circuits.lock import LockOwner
    from lumion_hw.fabric import FabricManager, FabricState
    from lumion_hw.fabric.requests import FabricRequest

_RUN = "lumion fabric run"
_MANAGERS = (_RUN, "lumion serve")
"""Programs that keep a fabric and take requests."""
_TAKEN_WITHIN_S = 30.0
"""Longest time until a manager accepts a request. It accepts none while it connects the jobs."""
_LOOK_S = 0.05
_FAILED = 3


@click.group(cls=NamedGroup)
def fabric() -> None:
    """Keep the jobs of a bench connected, and replace failed servers by spares.

    `lumion fabric run BENCH` connects the jobs of the bench file, prepares spares, watches for failures and recovers.
    The other commands read its journal, or send it a request.
    """


@fabric.command()
@target_options
@click.option("--for", "for_s", type=Duration(), help=f"Duration, up to {LONGEST_D}d.  [default: until Ctrl-C]")
@click.option(
    "--hook", "hook", multiple=True, metavar="WORD", help="Program to call at job events; repeat for its arguments."
)
def run(target: BenchTarget, for_s: float | None, hook: tuple[str, ...]) -> None:
    """Run the manager of BENCH's fabric and print its events, as JSON lines with --json.

    After a crash, the next manager continues from the journals and the mesh. --hook names a program that is called
    with stop, rebuild, restore or go, the job, and its members.
    """
    with _managed(target, _RUN, hook) as manager:
        finished = manager.begin()
        if finished is not None:
            note(f"finished the recovery of an earlier manager: {finished.failed} by {finished.spare}")
        _tell(target.as_json)("watching", _summary(manager))
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it is meant to end
            _run(manager, for_s)
        state = manager.state
    if state.refused:
        note(f"jobs without circuits: {', '.join(state.refused)}")
        click.get_current_context().exit(_FAILED)


def _run(manager: FabricManager, for_s: float | None) -> None:
    """Run the manager; handle requests of other programs between its steps."""
    from lumion_hw.fabric.requests import RequestBox

    service = manager.service
    box, me = RequestBox(service.journal.path.parent), service.lock.owner
    manager.run(for_s, between_steps=lambda: box.serve(me, lambda request: request.perform(manager)))


@fabric.command()
@target_options
@click.argument("unit")
@click.option("--because", "words", default="declared by hand", help="Reason, for the history.")
def fail(target: BenchTarget, unit: str, words: str) -> None:
    """Take UNIT, a server or accelerator, out of service and replace it by a spare.

    If a manager is running, it gets the request, and this command waits for the outcome.
    """
    _ask_or_do(target, "fail", unit, words)


@fabric.command()
@target_options
@click.option("--repaired", "unit", metavar="UNIT", help="Return this repaired server or accelerator to service.")
def recover(target: BenchTarget, unit: str | None) -> None:
    """Finish an interrupted recovery, connect missing circuits of jobs, or return repaired units to service.

    If a manager is running, it gets the request, and this command waits for the outcome. Success means that every
    circuit of the jobs was measured and works.
    """
    _ask_or_do(target, "recover" if unit is None else "repaired", unit or "")


@fabric.command()
@target_options
def status(target: BenchTarget) -> None:
    """Show jobs, replacements, failures and refused jobs. Uses no device."""
    from lumion_hw.bench.bench import load
    from lumion_hw.circuits import lock_owner, read_state
    from lumion_hw.fabric import read_fabric

    model = load(target.file)
    with target.directory() as directory:
        state, entries = read_fabric(directory)
        circuits, _ = read_state(directory)
        owner = lock_owner(directory)
    standing = {each.name for each in circuits.circuits}
    if target.as_json:
        document = {"jobs": _jobs(model, state, standing), "standing": [each.name for each in circuits.circuits]}
        echo_json({**document, "state": state, "held_by": None if owner is None else owner.name})
        return
    echo_table(
        "Jobs",
        ("job", "members", "state"),
        [(j["job"], " ".join(j["members"]), j["state"]) for j in _jobs(model, state, standing)],
    )
    if state.failed:
        echo_table("Failed", ("unit", "why"), list(state.failed.items()))
    loops = {each.request.source for each in circuits.circuits if each.request.source == each.request.target}
    rows = [(name, _role(model, state, name, loops)) for name in model.fabric.spares]
    if rows:
        echo_table("Spares", ("spare", "state"), rows)
    running = "no manager runs" if owner is None else f"held by {owner.name}"
    say(f"{running}; {len(entries)} entries, {state.fades} fades, {state.false_alarms} false alarms")
    if state.open is not None:
        note("a recovery was interrupted; finish it with `lumion fabric recover`")


@fabric.command()
@target_options
def history(target: BenchTarget) -> None:
    """List failures and recoveries, with the times of each recovery. Uses no device."""
    from lumion_hw.fabric import read_fabric

    with target.directory() as directory:
        entries = read_fabric(directory)[1]
    if target.as_json:
        echo_json({"entries": [{name: each for name, each in entry.items() if name != "state"} for entry in entries]})
        return
    rows: list[tuple[object, ...]] = []
    for entry in entries:
        try:
            spans = " ".join(f"{span['name']} {span['at_ms']:.1f}" for span in entry.get("spans", []))
            what = entry.get("outcome") or entry["entry"]
            who = entry.get("failed") or entry.get("unit") or entry.get("circuit")
            rows.append((entry["utc"], what, who, entry.get("spare"), spans or entry.get("words")))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"entry {entry.get('n')} of the fabric's journal has another version ({error!r})",
                hint="Use --json, or the version that wrote it.",
            ) from error
    echo_table("History", ("when", "what", "of", "spare", "times in ms since the fault, or reason"), rows)


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
            FabricManager(service, journal, hooks=hooks, on_event=_tell(target.as_json)) as manager,
        ):
            yield manager


def _ask_or_do(target: BenchTarget, what: str, unit: str, reason: str = "declared by hand") -> None:
    """Perform a request, or send it to the manager that holds the bench."""
    from lumion_hw.circuits import lock_owner
    from lumion_hw.fabric.requests import FabricRequest

    request = FabricRequest(what, unit, reason)
    with target.directory() as directory:
        owner = lock_owner(directory)
        if owner is not None and owner.program in _MANAGERS and target.take_over is None:
            _ask(directory, request, owner)
            say(f"done by {owner.name} ({owner.program}): every circuit of the jobs carries light")
            return
    with _managed(target, "lumion fabric") as manager:
        manager.begin()
        if what != "recover":
            request.perform(manager)
        summary, refused = _summary(manager), manager.state.refused
    if target.as_json:
        echo_json(summary)
    else:
        say(f"standing: {', '.join(summary['standing']) or 'nothing'}")
    if refused:
        for job, words in refused.items():
            note(f"{job} has no circuits: {words}")
        click.get_current_context().exit(_FAILED)


def _ask(directory: Path, request: FabricRequest, manager: LockOwner) -> None:
    """Send a request to a manager and wait for the outcome.

    Raises:
        BusyError: The manager did not accept the request, which was withdrawn.
        LumionError: The error of the manager, with its exit code.
    """
    from lumion_hw.circuits import lock_owner
    from lumion_hw.fabric.requests import RequestBox

    box = RequestBox(directory)
    number, since_s, is_taken = box.send(request, manager), time.monotonic(), False
    try:
        while (outcome := box.outcome(number)) is None:
            is_late = time.monotonic() > since_s + _TAKEN_WITHIN_S
            if (is_late or lock_owner(directory) != manager) and not is_taken:
                if box.withdraw(number):
                    raise BusyError(
                        f"{manager.name} ({manager.program}) did not accept the request within {_TAKEN_WITHIN_S:.0f} s",
                        hint="Nothing was done. It may still be connecting the jobs, or manage no fabric; try again.",
                    )
                is_taken = True
            if is_taken and lock_owner(directory) != manager:
                raise LumionError(
                    f"{manager.name} ended while it handled the request",
                    hint="`lumion fabric status BENCH` shows the result so far.",
                )
            time.sleep(_LOOK_S)
    except BaseException:
        box.withdraw(number)
        raise
    if outcome.error:
        error = LumionError(outcome.error)
        error.exit_code = outcome.exit_code
        raise error


def _tell(as_json: bool) -> Any:
    def tell(what: str, told: Mapping[str, Any]) -> None:
        if as_json:
            echo_json({"event": what, **told}, in_one_line=True)
        elif what == "span":
            times = f"+{told['bench_ms']:.2f} ms  at {told['at_ms']:.2f} ms  CPU {told['cpu_ms']:.1f} ms"
            say(f"  {told['name']:>13}  {times}")
        else:
            listed = ", ".join(f"{name}: {_short(value)}" for name, value in told.items() if name != "spans")
            say(f"{what}: {told.get('words') or listed}")

    return tell


def _short(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{name} {_short(each)}" for name, each in value.items()) or "none"
    return str(value)


def _summary(manager: FabricManager) -> dict[str, Any]:
    return {
        "jobs": {job.name: list(manager.members(job)) for job in manager.jobs},
        "standing": [each.name for each in manager.service.state.circuits],
        "spares": list(manager.spares),
        "cold": manager.standby.cold,
        "failed": dict(manager.state.failed),
    }


def _job_state(model: Any, job: Any, state: FabricState, standing: set[str]) -> str:
    from lumion_hw.fabric import job_requests

    if job.name in state.refused:
        return f"refused: {state.refused[job.name]}"
    wanted = {each.name for each in job_requests(model, job, state.places)}
    return "connected" if wanted <= standing else "not connected yet"


def _jobs(model: Any, state: FabricState, standing: set[str]) -> list[dict[str, Any]]:
    return [
        {
            "job": job.name,
            "members": [state.unit_at(member) for member in job.members],
            "state": _job_state(model, job, state, standing),
        }
        for job in model.fabric.all_jobs
    ]


def _role(model: Any, state: FabricState, name: str, loops: set[str]) -> str:
    """Return the present role of a spare."""
    from lumion_hw.fabric import find_unit

    if name in state.failed:
        return "failed"
    if name in state.places.values():
        return "in use"
    return "stands by" if set(find_unit(model, name).nics) <= loops else "cold"
