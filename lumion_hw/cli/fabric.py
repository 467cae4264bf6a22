"""``lumion fabric``: keep the jobs of a bench connected, and put spares in the place of what fails."""

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
"""How long a manager may take to take a request; while it connects the jobs it takes none."""
_LOOK_S = 0.05
_FAILED = 3


@click.group(cls=NamedGroup)
def fabric() -> None:
    """Keep the jobs of a bench connected, and put spares in the place of what fails.

    `lumion fabric run BENCH` connects the jobs of the bench file, lets spares stand by, watches, and recovers. The
    other commands read its journal, or tell it what to do.
    """


@fabric.command()
@target_options
@click.option("--for", "for_s", type=Duration(), help=f"How long, up to {LONGEST_D}d; until Ctrl-C if not given.")
@click.option("--hook", "hook", multiple=True, metavar="WORD", help="Program, and arguments, called for job hooks.")
def run(target: BenchTarget, for_s: float | None, hook: tuple[str, ...]) -> None:
    """Run the manager of BENCH's fabric; events and spans are told as they come, as JSON lines with --json.

    A manager that is killed is followed by the next one, which goes on from the journals and the mesh. --hook names a
    program that is called with stop, rebuild, restore or go, the job, and its members.
    """
    with _managed(target, _RUN, hook) as manager:
        finished = manager.begin()
        if finished is not None:
            note(f"ended what an earlier manager had begun: {finished.failed} by {finished.spare}")
        _tell(target.as_json)("watching", _summary(manager))
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it is meant to end
            _run(manager, for_s)
        state = manager.state
    if state.refused:
        note(f"without circuits: {', '.join(state.refused)}")
        click.get_current_context().exit(_FAILED)


def _run(manager: FabricManager, for_s: float | None) -> None:
    """Run the manager, and do what other programs ask of it between two steps."""
    from lumion_hw.fabric.requests import RequestBox

    service = manager.service
    box, me = RequestBox(service.journal.path.parent), service.lock.owner
    manager.run(for_s, between_steps=lambda: box.serve(me, lambda request: request.perform(manager)))


@fabric.command()
@target_options
@click.argument("unit")
@click.option("--because", "words", default="declared by hand", help="Why, for the history.")
def fail(target: BenchTarget, unit: str, words: str) -> None:
    """Take UNIT, a server or accelerator, out of service; a spare takes its place.

    If a manager runs, the request goes to it, and this command waits for the outcome.
    """
    _ask_or_do(target, "fail", unit, words)


@fabric.command()
@target_options
@click.option("--repaired", "unit", metavar="UNIT", help="This server or accelerator has been repaired.")
def recover(target: BenchTarget, unit: str | None) -> None:
    """Finish a recovery that a killed manager had begun, connect what jobs miss, and take repaired units back.

    If a manager runs, the request goes to it, and this command waits for the outcome. Success means that every circuit
    of the jobs carries light.
    """
    _ask_or_do(target, "recover" if unit is None else "repaired", unit or "")


@fabric.command()
@target_options
def status(target: BenchTarget) -> None:
    """Show jobs, who stands in whose place, what has failed, and what was refused. Touches no device."""
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
        note("a recovery was begun and not ended: `lumion fabric recover`")


@fabric.command()
@target_options
def history(target: BenchTarget) -> None:
    """List what has failed and what was done about it, with the spans of each recovery. Touches no device."""
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
                f"entry {entry.get('n')} of the fabric's journal is not of this version ({error!r})",
                hint="Read it with --json, or with the version that wrote it.",
            ) from error
    echo_table("History", ("when", "what", "of", "spare", "spans, ms since the fault; or why"), rows)


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
    """Do something, or have the manager do it that holds the bench."""
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
    """Leave a request for a manager, and wait for its outcome.

    Raises:
        BusyError: The manager does not take the request, which was withdrawn.
        LumionError: What the manager failed with, with its exit code.
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
                        f"{manager.name} ({manager.program}) did not take the request within {_TAKEN_WITHIN_S:.0f} s",
                        hint="Nothing was done. It may still be connecting the jobs, or keep no fabric; try again.",
                    )
                is_taken = True
            if is_taken and lock_owner(directory) != manager:
                raise LumionError(
                    f"{manager.name} ended while it worked on the request",
                    hint="`lumion fabric status BENCH` shows how far it came.",
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
    return "connected" if wanted <= standing else "to be connected"


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
    """Return what a spare does at present."""
    from lumion_hw.fabric import find_unit

    if name in state.failed:
        return "failed"
    if name in state.places.values():
        return "in use"
    return "stands by" if set(find_unit(model, name).nics) <= loops else "cold"
