"""Changes circuits over several meshes: on all benches, or on none.

A connection has two phases. In the first, every bench programs its mesh without light; then the light is switched on
from bench to bench and measured up to the last receiver. Only when all circuits are proven, every bench keeps its
segments. An error before that undoes the change on every bench.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from lumion_hw.circuits import CircuitRequest
from lumion_hw.circuits.lock import BenchLock
from lumion_hw.circuits.state import now_utc, state_directory
from lumion_hw.errors import CircuitError, ConfigError, LinkError, LumionError, name_hint
from lumion_hw.files import AnyPath
from lumion_hw.joined.benches import BenchCircuits, JoinedBench, on_benches, open_benches, results_on_benches
from lumion_hw.joined.file import JoinedFile
from lumion_hw.joined.identity import identify
from lumion_hw.joined.journal import KEPT, JoinedChange, JoinedJournal
from lumion_hw.joined.plan import JoinedPlan, JoinedRequest, LinkPlanner, PlannedLink, free_fibres
from lumion_hw.joined.status import LinkStatus, link_statuses, segments_by_bench

RECOVER = "Run `lumion joined recover FILE` when all benches are served again."
_MAX_LISTED = 4
_DARK_DB = 15.0
"""Light that is weaker than expected by more than this counts as dark."""


class JoinedMeshes:
    """Circuits over meshes that are joined by fibres.

    Args:
        file: The joined meshes.
        benches: The benches, by name.
        journal: Journal of this program.
        pause: Waits for a time in seconds, while receivers notice a change of the light.
    """

    @classmethod
    @contextlib.contextmanager
    def open(cls, file: JoinedFile, directory: AnyPath | None = None, take_over: str | None = None) -> Iterator[Self]:
        """Lock the state directory, and connect to all benches, as a context manager.

        Args:
            file: The joined meshes.
            directory: Directory of the journal; by default one per user and name of the joined meshes.
            take_over: Name of the user from whom leases and benches are taken.

        Raises:
            LumionError: A bench does not answer or does not fit the file, or the journal is damaged.
        """
        from lumion_hw.clock import SystemClock

        folder = Path(directory) if directory is not None else state_directory(file.name, "joined")
        with (
            BenchLock(folder, "lumion joined", take_over=take_over),
            JoinedJournal(folder, file.name) as journal,
            open_benches(file, take_over) as benches,
        ):
            yield cls(file, benches, journal, SystemClock().sleep)

    def __init__(
        self,
        file: JoinedFile,
        benches: Mapping[str, JoinedBench],
        journal: JoinedJournal,
        pause: Callable[[float], None],
    ) -> None:
        self._file, self._benches, self._journal, self._pause = file, benches, journal, pause

    # -- connect ------------------------------------------------------------------------------------------------------

    def plan(self, requests: Sequence[JoinedRequest], replaced: Sequence[str] = ()) -> JoinedPlan:
        """Plan circuits beside the active ones; nothing is changed.

        Args:
            requests: The circuits.
            replaced: Names of active circuits that they replace.

        Raises:
            ConfigError: A circuit to replace does not exist.
            LumionError: As for :meth:`~lumion_hw.joined.plan.LinkPlanner.plan`.
        """
        return self._plan(requests, segments_by_bench(self._links([*replaced, *self._lost(requests)])))

    def _plan(self, requests: Sequence[JoinedRequest], removed: Mapping[str, tuple[str, ...]]) -> JoinedPlan:
        states = results_on_benches(self._benches, {name: bench.circuits for name, bench in self._benches.items()})
        states = {name: state.without(removed.get(name, ())) for name, state in states.items()}
        _check_modules_free(requests, states)
        free = list(free_fibres(self._file.fibres, {name: state.ends for name, state in states.items()}))
        models = {name: bench.model for name, bench in self._benches.items()}

        def plan_on(bench: str, segments: Sequence[CircuitRequest]) -> Sequence[Mapping[str, Any]]:
            return self._benches[bench].plan(segments, removed.get(bench, ()))

        return LinkPlanner(models, free, plan_on).plan(requests)

    def connect(self, requests: Sequence[JoinedRequest], replaced: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Connect circuits and prove them from end to end, or leave all benches as they were.

        A circuit that was lost, such as by the restart of a bench, is connected again in place of its remains.

        Args:
            requests: The circuits.
            replaced: Names of active circuits that they replace. A transmitter that a new circuit uses stays on.

        Returns:
            The measured values of each circuit as a JSON document.

        Raises:
            BusyError: Another program changes one of the benches.
            ConfigError: A circuit to replace does not exist.
            CircuitError: A circuit is not possible or was not proven; the message says where its light ends.
            LumionError: A bench or a device failed. Unless the message says otherwise, all benches are as before.
        """
        self._journal.check_finished()
        replaced = list(dict.fromkeys((*replaced, *self._lost(requests))))
        removed = segments_by_bench(self._links(replaced))
        plan = self._plan(requests, removed)
        segments = {name: plan.segments_of(name) for name in dict.fromkeys((*plan.benches, *removed))}
        change = self._new_change(
            "connect",
            [link.request.name for link in plan.links],
            {name: tuple(request.name for request in own) for name, own in segments.items()},
        )
        change = replace(change, replaced=tuple(replaced), removed=removed)
        self._reserve(tuple(segments))
        self._journal.begin(change)
        try:
            work = {
                name: partial(self._benches[name].prepare, change.name, own, removed.get(name, ()))
                for name, own in segments.items()
            }
            results_on_benches(self._benches, work)
            measured = self._light(change.name, plan)
            identify(self._benches, change.name, plan, self._pause)
        except BaseException as error:
            self._undo(change, error)
            raise
        self._journal.decide()
        self._keep(change)
        return measured

    def _lost(self, requests: Sequence[JoinedRequest]) -> list[str]:
        """Return the names of those circuits that this program has connected and that are lost."""
        wanted = {request.name for request in requests} & set(self._journal.history.circuits)
        return [link.name for link in self.status() if link.is_lost and link.name in wanted] if wanted else []

    def _new_change(self, kind: str, circuits: Sequence[str], segments: Mapping[str, tuple[str, ...]]) -> JoinedChange:
        import secrets

        # The random part distinguishes changes of programs with different journals.
        name = f"{self._file.name}-{self._journal.next_number}-{secrets.token_hex(3)}"
        return JoinedChange(name, kind, tuple(circuits), segments, now_utc())

    def _reserve(self, names: Sequence[str]) -> None:
        # One after the other in the order of the file: of two programs, one then gets all benches.
        for name in sorted(names, key=list(self._benches).index):
            results_on_benches(self._benches, {name: self._benches[name].reserve})

    def _light(self, change: str, plan: JoinedPlan) -> list[dict[str, Any]]:
        measured: dict[tuple[str, str], Mapping[str, Any]] = {}
        for stage in range(plan.stages):
            links = [link for link in plan.links if len(link.segments) > stage]
            arriving = {link.request.name: _arriving_dbm(link, stage, measured) for link in links}
            work: dict[str, Callable[[], Sequence[Mapping[str, Any]]]] = {}
            for name in dict.fromkeys(link.segments[stage][0] for link in links):
                own = [link for link in links if link.segments[stage][0] == name]
                powers = {link.segments[stage][1].name: arriving[link.request.name] for link in own}
                work[name] = partial(self._benches[name].light, change, powers)
            for name, documents in results_on_benches(self._benches, work).items():
                measured |= {(name, str(document["circuit"])): document for document in documents}
            failures = [text for link in links if (text := _failure(link, stage, arriving, measured))]
            if failures:
                raise CircuitError(
                    f"{len(failures)} of {len(plan.links)} circuits could not be proven, so all benches were set "
                    f"back: {'; '.join(failures[:_MAX_LISTED])}"
                )
        return [_proof(link, measured) for link in plan.links]

    def _undo(self, change: JoinedChange, error: BaseException) -> None:
        reason = str(error) or type(error).__name__
        outcomes = on_benches(
            self._benches,
            {name: partial(self._benches[name].undo, change.name, reason) for name in change.segments},
        )
        failed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, LumionError)}
        if not failed:
            self._journal.end(f"undone: {reason}")
            return
        text = "; ".join(f"{name}: {outcome}" for name, outcome in failed.items())
        error.add_note(f"The change {change.name} could not be undone on all benches ({text}). {RECOVER}")

    def _keep(self, change: JoinedChange) -> None:
        outcomes = on_benches(
            self._benches, {name: partial(self._benches[name].keep, change.name) for name in change.segments}
        )
        failed = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, LumionError)}
        if not failed:
            self._journal.end(KEPT)
            return
        text = "; ".join(f"{name}: {outcome}" for name, outcome in failed.items())
        raise LinkError(
            f"all circuits were proven, but not every bench has confirmed to keep them ({text})", hint=RECOVER
        )

    # -- disconnect, recover, status ----------------------------------------------------------------------------------

    def disconnect(self, names: Sequence[str] | None = None) -> list[str]:
        """Disconnect circuits on all benches that they cross, from the sending bench on.

        Args:
            names: Names of the circuits; by default all that cross a fibre between meshes.

        Returns:
            The names of the circuits.

        Raises:
            ConfigError: There is no such circuit, or a change is unfinished.
            LumionError: A bench failed; recovery finishes the change.
        """
        self._journal.check_finished()
        removed = self._links(names)
        if not removed:
            return []
        change = self._new_change("disconnect", [link.name for link in removed], segments_by_bench(removed))
        self._reserve(tuple(change.segments))
        self._journal.begin(change)
        self._disconnect(change)
        return [link.name for link in removed]

    def _links(self, names: Sequence[str] | None) -> list[LinkStatus]:
        """Return the active circuits with these names; by default all."""
        if names is not None and not names:
            return []
        links = {link.name: link for link in self.status()}
        for name in names or ():
            if name not in links:
                raise ConfigError(f"no circuit {name} crosses these meshes", hint=name_hint(name, links))
        return [links[name] for name in (links if names is None else names)]

    def _disconnect(self, change: JoinedChange, outcome: str = "disconnected") -> None:
        failed: dict[str, str] = {}
        segments = {name: (*own, *change.removed.get(name, ())) for name, own in change.segments.items()}
        # Benches with senders come first: without light, no other mesh sends any to a wrong receiver.
        sending = {name for name, own in segments.items() if any(map(is_at_module, own))}
        for is_sending in (True, False):
            work = {
                name: partial(self._benches[name].disconnect, own)
                for name, own in segments.items()
                if (name in sending) is is_sending
            }
            outcomes = on_benches(self._benches, work)
            failed |= {name: str(result) for name, result in outcomes.items() if isinstance(result, LumionError)}
        if failed:
            text = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise LinkError(f"not disconnected on all benches ({text})", hint=RECOVER)
        self._journal.end(outcome)

    def recover(self) -> str:
        """Finish or undo the change that another run of this program has left unfinished.

        Circuits that were proven on all benches are kept if every bench still has its segments. Otherwise the change is
        undone everywhere; the circuits that it replaced are then disconnected, too, if a bench has removed them.

        Returns:
            The outcome as a sentence.

        Raises:
            LumionError: A bench does not answer; the change stays unfinished.
        """
        change = self._journal.unfinished
        if change is None:
            return "no change is unfinished"
        circuits = listed(change.circuits)
        if change.kind == "disconnect":
            self._disconnect(change)
            return f"disconnected {circuits} on all benches"
        states = results_on_benches(self._benches, {name: self._benches[name].circuits for name in change.segments})
        if change.decided and all(
            state.prepared == change.name or _is_kept(change, name, state) for name, state in states.items()
        ):
            self._keep(change)
            return f"kept {circuits}, which were proven on all benches"
        self._undo_everywhere(change, states)
        return f"undid the connection of {circuits} on all benches"

    def _undo_everywhere(self, change: JoinedChange, states: Mapping[str, BenchCircuits]) -> None:
        undone = "the program that began this change has ended"
        results_on_benches(
            self._benches,
            {
                name: partial(self._benches[name].undo, change.name, undone)
                for name, state in states.items()
                if state.prepared == change.name
            },
        )
        # A bench that has kept its segments already disconnects them, because another bench has lost its own.
        if change.decided:
            self._disconnect(change, "undone")
        else:
            self._journal.end("undone")

    def status(self) -> list[LinkStatus]:
        """Return all circuits that cross a fibre between meshes, as the benches report them.

        A circuit that this program has connected and a bench has lost keeps its name.
        """
        outcomes = on_benches(self._benches, {name: bench.circuits for name, bench in self._benches.items()})
        states: dict[str, BenchCircuits | str] = {
            name: str(outcome) if isinstance(outcome, LumionError) else outcome for name, outcome in outcomes.items()
        }
        return link_statuses(self._file.fibres, states, self._journal.history.circuits)

    @property
    def unfinished(self) -> JoinedChange | None:
        """The change that was begun and not ended; ``None`` if there is none."""
        return self._journal.unfinished


def _is_kept(change: JoinedChange, bench: str, state: BenchCircuits) -> bool:
    """Return whether a bench has its segments of a connection, and none of those that they replace."""
    segments = set(change.segments[bench])
    # A segment that both the old and the new circuit have is the same.
    gone = set(change.removed.get(bench, ())) - segments
    return segments <= state.names and not gone & state.names


def is_at_module(segment: str) -> bool:
    """Return whether the light of a segment, such as ``sfp-a:port12``, begins at a module of its bench."""
    return re.match(r"port[0-9]+:", segment) is None


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of the others."""
    further = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + further


def _check_modules_free(requests: Sequence[JoinedRequest], states: Mapping[str, BenchCircuits]) -> None:
    for request in requests:
        for (bench, module), place, verb in ((request.source, 0, "sends"), (request.target, 1, "receives")):
            users = [
                name for name in (states[bench].names if bench in states else ()) if name.split(":")[place] == module
            ]
            if users:
                raise ConfigError(
                    f"circuit {request}: {module} already {verb} in circuit {users[0]} of bench {bench}",
                    hint="Disconnect this circuit first.",
                )


def _arriving_dbm(link: PlannedLink, stage: int, measured: Mapping[tuple[str, str], Mapping[str, Any]]) -> float | None:
    if stage == 0:
        return None
    bench, request = link.segments[stage - 1]
    sent_dbm = measured[bench, request.name]["received_dbm"]
    return None if sent_dbm is None else float(sent_dbm) - link.fibres[stage - 1].loss_db


def _failure(
    link: PlannedLink,
    stage: int,
    arriving: Mapping[str, float | None],
    measured: Mapping[tuple[str, str], Mapping[str, Any]],
) -> str | None:
    """Return where the light of a circuit ends, or ``None`` if its segment is proven."""
    bench, request = link.segments[stage]
    document = measured[bench, request.name]
    if not document["failures"]:
        return None
    dark_dbm = link.received_dbm[stage] - _DARK_DB

    def is_dark(power_dbm: float | None) -> bool:
        return power_dbm is None or power_dbm < dark_dbm

    arriving_dbm = arriving[link.request.name]
    if stage > 0 and arriving_dbm is not None and is_dark(document["received_dbm"]) and is_dark(document["stray_dbm"]):
        fibre = link.fibres[stage - 1]
        return (
            f"{link.request}: no light arrives at {fibre.end}, although {fibre.start} sends "
            f"{arriving_dbm + fibre.loss_db:.1f} dBm: check the fibre from {fibre}"
        )
    return f"{link.request}: {request.name} on bench {bench}: {', '.join(document['failures'])}"


def _proof(link: PlannedLink, measured: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[str, Any]:
    documents = [measured[bench, request.name] for bench, request in link.segments]
    losses_db = [document["measured_loss_db"] for document in documents]
    total_db = None if None in losses_db else round(math.fsum(losses_db), 3)
    return {
        **link.document(),
        "measured_mesh_loss_db": total_db,
        "received_dbm": documents[-1]["received_dbm"],
        "margin_db": documents[-1]["margin_db"],
        "predicted_margin_db": round(link.margin_db, 3),
    }
