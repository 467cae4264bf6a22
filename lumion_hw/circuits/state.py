"""What is connected, kept in a file, so that circuits outlive the program that set them up.

A journal (:mod:`lumion_hw.storage.line_journal`) holds two entries for every change: ``begun`` is on the disk before
anything is changed and holds the heater currents driven until then; ``ended`` holds all that stands afterwards. A
program that is killed in between leaves ``begun`` alone: the next one reads the mesh back and tells whether it is as
before, dark, or changed (:func:`compare_with_mesh`).
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path as FilePath
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.mesh_access import MeshAccess
from lumion_hw.circuits.ends import circuit_ends
from lumion_hw.circuits.lease_clock import LeaseClock, LeaseEnd
from lumion_hw.circuits.planned import ArmTrim, CircuitPlan, PlannedCircuit
from lumion_hw.circuits.planning_mesh import planning_mesh
from lumion_hw.circuits.proof import CircuitProof
from lumion_hw.circuits.reckoning import RoutedCircuit, with_budgets
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import path_exists
from lumion_hw.interfaces.wiring import InputPath, OutputPath, Wiring
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing import Path, Routing, states_for_paths
from lumion_hw.storage.line_journal import OTHER_VERSION, LineJournal, checked, read_lines

JOURNAL = "circuits.jsonl"
"""Name of the journal in the state directory."""
_FORMAT = "lumion-circuits 1"
_WHAT = "the journal of circuits"


class MeshVerdict(StrEnum):
    """What a read-back of the mesh says of what the journal knows."""

    AS_LEFT = "as left"
    """All heaters are driven as the last change has left them."""
    AS_BEFORE = "as before"
    """A change was begun and never ended, and the mesh is as it was before it."""
    DARK = "dark"
    """No heater is driven: the mesh is in its safe state, and no circuit stands."""
    CHANGED = "changed"
    """A change was begun and never ended, and the mesh is neither as before nor dark."""
    DIFFERENT = "different"
    """Somebody else has driven the mesh since, or a heater is broken."""


@dataclass(frozen=True)
class ActiveArm:
    """One way of a standing circuit.

    Attributes:
        path: PUCs on the way.
        trim: What is trimmed away, if anything is.
    """

    path: Path
    trim: ArmTrim | None = None


@dataclass(frozen=True)
class ActiveCircuit:
    """A circuit as the journal knows it.

    Attributes:
        request: What was asked for.
        arms: Its ways through the mesh; two for two tributaries.
        since_utc: When it was set up, ISO 8601.
        lease: When it is to be taken down; ``None`` if never.
        seen_utc: When it was measured last.
        proof: What was measured then: ``launch_dbm``, ``measured_loss_db``, ``predicted_loss_db``, ``received_dbm``,
            ``margin_db``, ``overload_margin_db``, of two polarizations also ``pdl_db``, ``dgd_ps`` and ``prefec_ber``;
            ``None`` where there was no number.
        marks: What is to be known of it, such as ``degraded: ...`` and ``stale: ...``.
    """

    request: CircuitRequest
    arms: tuple[ActiveArm, ...]
    since_utc: str
    lease: LeaseEnd | None = None
    seen_utc: str | None = None
    proof: Mapping[str, float | None] = field(default_factory=dict)
    marks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its ends, such as ``sfp-a:sfp-b``."""
        return f"{self.request.source}:{self.request.target}"

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its ways through the mesh."""
        return tuple(arm.path for arm in self.arms)

    @property
    def pucs(self) -> tuple[int, ...]:
        """PUCs it passes."""
        return tuple(puc for path in self.paths for puc in path.pucs)

    def lease_left_s(self, time: LeaseClock) -> float | None:
        """Return how long it is still wanted, 0 once its lease has ended; ``None`` without a lease."""
        return None if self.lease is None else max(time.left_s(self.lease), 0.0)

    def has_expired(self, time: LeaseClock) -> bool:
        """Whether its lease has ended."""
        return self.lease is not None and time.left_s(self.lease) <= 0.0

    def age_s(self, now: datetime) -> float:
        """Return for how long it has stood."""
        return max((now - datetime.fromisoformat(self.since_utc)).total_seconds(), 0.0)


@dataclass(frozen=True)
class CircuitState:
    """All that stands on a bench.

    Attributes:
        circuits: The circuits.
        currents_ma: Heater currents that make them, shape ``(2 n_pucs,)``; empty where nothing was ever driven.
        states: States of the PUCs that can be set, parked ones included.
        record: Path of the calibration record they were planned with.
    """

    circuits: tuple[ActiveCircuit, ...] = ()
    currents_ma: tuple[float, ...] = ()
    states: Mapping[int, State] = field(default_factory=dict)
    record: str | None = None

    def circuit(self, name: str) -> ActiveCircuit:
        """Return a circuit by its ends.

        Raises:
            ConfigError: There is none of this name.
        """
        for circuit in self.circuits:
            if circuit.name == name:
                return circuit
        names = ", ".join(circuit.name for circuit in self.circuits)
        raise ConfigError(f"no circuit {name} is connected", hint=f"Connected are {names}." if names else "None are.")


@dataclass(frozen=True)
class UnfinishedChange:
    """A change that was begun and never ended.

    Attributes:
        what: What was to be done, such as ``connect``.
        circuits: Names of the circuits concerned.
        since_utc: When it was begun.
        before_ma: Heater currents driven until then.
        pid: Number of the process that began it.
    """

    what: str
    circuits: tuple[str, ...]
    since_utc: str
    before_ma: tuple[float, ...]
    pid: int


@dataclass(frozen=True)
class MeshDifference:
    """A PUC that is not driven as it should be.

    Attributes:
        puc: Its number.
        noted_ma: Currents of its upper and lower heater by the journal.
        driven_ma: Currents that are driven.
        circuits: Names of the circuits that pass it.
    """

    puc: int
    noted_ma: tuple[float, float]
    driven_ma: tuple[float, float]
    circuits: tuple[str, ...]

    def __str__(self) -> str:
        """Return it in words."""
        noted, driven = (" and ".join(f"{ma:.3f}" for ma in pair) for pair in (self.noted_ma, self.driven_ma))
        whose = f", passed by {', '.join(self.circuits)}" if self.circuits else ", passed by no circuit"
        return f"PUC {self.puc}: {driven} mA driven, {noted} mA noted{whose}"


@dataclass(frozen=True)
class MeshFinding:
    """What the mesh was found to drive.

    Attributes:
        verdict: In one word.
        differences: PUCs that are driven otherwise than the journal says, where any are.
        begun: The change that was never ended, if there is one.
    """

    verdict: MeshVerdict
    differences: tuple[MeshDifference, ...] = ()
    begun: UnfinishedChange | None = None

    def __str__(self) -> str:
        """Return it in words: a sentence, and a line per PUC."""
        words = f"the mesh is {self.verdict.value}"
        if self.begun is not None:
            change = f"{self.begun.what} {' '.join(self.begun.circuits)}".rstrip()
            words += f"; {change!r}, begun {self.begun.since_utc} by process {self.begun.pid}, was never ended"
        return "\n".join([words, *(f"  {each}" for each in self.differences)])


class CircuitJournal:
    """The journal of what is connected on a bench, open for writing; hold the bench's lock meanwhile.

    Args:
        directory: State directory of the bench; made if there is none.
        bench: Name of the bench.
        mesh_sha256: Hash of the mesh's canonical text: circuits of another mesh are none of this one.

    Raises:
        ConfigError: The journal is of another bench, damaged, or nothing can be written there.
        LumionError: There is no room.
    """

    def __init__(self, directory: AnyPath, bench: str, mesh_sha256: str) -> None:
        header = {"entry": "header", "format": _FORMAT, "bench": bench, "mesh_sha256": mesh_sha256}
        self._lines = LineJournal(FilePath(directory) / JOURNAL, _WHAT, header)
        self.state, self.begun = _contents(self._lines.take_existing_entries(), self._lines.path)

    @property
    def path(self) -> FilePath:
        """The file."""
        return self._lines.path

    def begin(self, what: str, circuits: Sequence[str], before_ma: NDArray[np.float64]) -> None:
        """Note that a change is about to begin. Nothing may be changed before this has returned.

        Args:
            what: What is to be done, such as ``connect``.
            circuits: Names of the circuits concerned.
            before_ma: Heater currents driven now.

        Raises:
            LumionError: There is no room; nothing was changed.
            ConfigError: Another change was begun and not ended.
        """
        if self.begun is not None:
            raise ConfigError(f"{self.path}: a change was begun {self.begun.since_utc} and not ended")
        begun = UnfinishedChange(what, tuple(circuits), now_utc(), tuple(before_ma.tolist()), os.getpid())
        self._lines.append({"entry": "begun", **dataclasses.asdict(begun)})
        self.begun = begun

    def end(self, outcome: str, state: CircuitState) -> None:
        """Note what came of the change, and all that stands now.

        Args:
            outcome: In words: ``done``, or why not.
            state: What stands.

        Raises:
            LumionError: There is no room: the change stays begun.
        """
        entry = _ended(outcome, state)
        self._lines.append(entry)
        self.state, self.begun = state, None
        self._lines.restart_if_large(entry)

    def note(self, state: CircuitState) -> None:
        """Note new readings, marks and currents of what stands, between changes. Raises as :meth:`end`."""
        self.end("kept", state)

    def close(self) -> None:
        """Close the file; idempotent."""
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_state(directory: AnyPath) -> tuple[CircuitState, UnfinishedChange | None]:
    """Return what the journal of a bench says, changing nothing; nothing stands where there is none.

    Raises:
        ConfigError: It is damaged.
    """
    path = FilePath(directory) / JOURNAL
    if not path_exists(path, _WHAT):
        return CircuitState(), None
    return _contents(read_lines(path, _WHAT).entries, path)


def state_directory(bench: str, controller: str) -> FilePath:
    """Return where the state of a bench is kept unless told otherwise: under ``$XDG_STATE_HOME``.

    Args:
        bench: Name of the bench.
        controller: What tells its controller from others: serial number, or address.
    """
    home = os.environ.get("XDG_STATE_HOME")
    base = FilePath(home) if home else FilePath.home() / ".local" / "state"
    return base / "lumion" / re.sub(r"[^\w.-]+", "-", f"{bench}-{controller}")


def compare_with_mesh(mesh: MeshAccess, state: CircuitState, begun: UnfinishedChange | None) -> MeshFinding:
    """Compare what is driven with what the journal says.

    Args:
        mesh: The mesh; a controller that measures its outputs has its readings confirmed by what fits.
        state: What stood after the last change that ended.
        begun: A change that was begun since.

    Raises:
        LumionError: As of reading back.
    """
    dark = np.zeros(len(mesh.heater_channels))
    noted_ma = np.array(state.currents_ma) if state.currents_ma else dark
    known = [(MeshVerdict.AS_LEFT if begun is None else MeshVerdict.AS_BEFORE, noted_ma)]
    if begun is not None:
        known.append((MeshVerdict.AS_BEFORE, np.array(begun.before_ma)))
    known.append((MeshVerdict.DARK, dark))
    for verdict, currents_ma in known:
        if len(currents_ma) == len(dark) and mesh.is_driving(currents_ma).all():
            return MeshFinding(verdict, begun=begun)
    return MeshFinding(
        MeshVerdict.DIFFERENT if begun is None else MeshVerdict.CHANGED,
        tuple(_differences(mesh, noted_ma, state.circuits)),
        begun,
    )


def active_circuit(
    circuit: PlannedCircuit, proof: CircuitProof | None, time: LeaseClock, before: ActiveCircuit | None = None
) -> ActiveCircuit:
    """Return a circuit as the journal keeps it.

    Args:
        circuit: What was planned.
        proof: What was measured of it, if it was.
        time: The time.
        before: What the journal knew of it: since when it stands, its lease and its last proof.
    """
    lease_s, now = circuit.request.lease_s, _in_utc(time.utc())
    if before is None:
        before = ActiveCircuit(circuit.request, (), now, None if lease_s is None else time.lease_end(lease_s))
    measured = dict(before.proof) if proof is None else proof_document(proof)
    seen = before.seen_utc if proof is None else now
    arms = tuple(ActiveArm(arm.path, arm.trim) for arm in circuit.arms)
    return dataclasses.replace(before, arms=arms, proof=measured, seen_utc=seen)


def proof_document(proof: CircuitProof) -> dict[str, float | None]:
    """Return the numbers of a proof; of two polarizations also what the receiver says of them."""
    budget = proof.circuit.budget
    overload_margin_db = None if proof.received_dbm is None else budget.overload_dbm - proof.received_dbm
    numbers: dict[str, float | None] = {
        "launch_dbm": proof.launch_dbm,
        "measured_loss_db": proof.measured_loss_db,
        "predicted_loss_db": budget.mesh_loss_db,
        "received_dbm": proof.received_dbm,
        "margin_db": proof.margin_db,
        "overload_margin_db": overload_margin_db,
    }
    accepted = proof.acceptance
    if accepted is not None:
        numbers |= {"pdl_db": accepted.pdl_db, "dgd_ps": accepted.dgd_ps, "prefec_ber": accepted.prefec_ber}
    if proof.levels is not None:
        numbers |= {"arms_differ_db": proof.levels.imbalance_db, "arms_differ_sigma_db": proof.levels.sigma_db}
    # To the millidecibel, and bit errors to what is counted of them.
    digits = {"prefec_ber": 12}
    return {name: None if each is None else round(float(each), digits.get(name, 3)) for name, each in numbers.items()}


def restored_plan(
    model: BenchModel, record: CalibrationRecord, state: CircuitState, wiring: Wiring | None = None
) -> CircuitPlan | None:
    """Return what stands as a plan, its budgets reckoned anew; ``None`` if nothing does. No device is asked.

    Args:
        model: The bench.
        record: Calibration of its mesh.
        state: What stands.
        wiring: Its fibres, with what is set in them; those of the file if not given.

    Raises:
        CircuitError: The modules of a circuit do not fit together any more.
        ConfigError: A circuit's fibres are wired otherwise by now.
    """
    if not state.circuits:
        return None
    _check_fits(record.mesh, state)
    wiring, mesh, planning = wiring or model.to_wiring(), record.mesh, planning_mesh(record)
    routed = []
    for circuit in state.circuits:
        entries, exits = zip(*(_fibres(wiring, circuit, path) for path in circuit.paths), strict=True)
        ends = circuit_ends(model, wiring, mesh, circuit.request)
        trims = tuple(arm.trim for arm in circuit.arms)
        routed.append(RoutedCircuit(dataclasses.replace(ends, entries=entries, exits=exits), circuit.paths, trims))
    currents_ma = np.array(state.currents_ma)
    paths = tuple(path for circuit in state.circuits for path in circuit.paths)
    return CircuitPlan(
        with_budgets(model, wiring, planning, routed, currents_ma),
        Routing(states_for_paths(mesh, paths), paths),
        dict(state.states),
        currents_ma,
        heat_mw=float(planning.heat_mw(currents_ma).sum()),
    )


def _check_fits(mesh: MeshTopology, state: CircuitState) -> None:
    """Refuse circuits over PUCs or ports that a mesh does not have. Raises ``ConfigError``."""
    pucs = {*state.states, *(puc for circuit in state.circuits for puc in circuit.pucs)}
    ports = {port for circuit in state.circuits for path in circuit.paths for port in (path.source, path.target)}
    wrong = [f"PUC {puc}" for puc in pucs if not 0 <= puc < mesh.n_pucs]
    wrong += [f"port {port}" for port in ports if not 0 <= port < mesh.n_ports]
    if len(state.currents_ma) != 2 * mesh.n_pucs:
        wrong.append(f"{len(state.currents_ma)} heater currents")
    if wrong:
        raise ConfigError(
            f"the journal of circuits has {', '.join(wrong)}, and this mesh has {mesh.n_pucs} PUCs and "
            f"{mesh.n_ports} ports",
            hint=OTHER_VERSION,
        )


def _fibres(wiring: Wiring, circuit: ActiveCircuit, path: Path) -> tuple[InputPath, OutputPath]:
    """Return the fibres at both ends of a way, by its ports."""
    request = circuit.request
    entries = [each for each in wiring.inputs if (each.port, each.transponder) == (path.source, request.source)]
    exits = [each for each in wiring.outputs if (each.port, each.transponder) == (path.target, request.target)]
    if not entries or not exits:
        raise ConfigError(
            f"circuit {circuit.name} stands from port {path.source} to port {path.target}, where this bench file has "
            "other fibres",
            hint="Use the bench file it was connected with, or `lumion disconnect BENCH --all`.",
        )
    return entries[0], exits[0]


def now_utc() -> str:
    """Return the present time, ISO 8601 in UTC."""
    return _in_utc(datetime.now(UTC))


def _in_utc(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def _differences(
    mesh: MeshAccess, noted_ma: NDArray[np.float64], circuits: Sequence[ActiveCircuit]
) -> Iterator[MeshDifference]:
    """Yield the PUCs that are driven otherwise than noted."""
    as_noted = mesh.is_driving(noted_ma).reshape(-1, 2)
    driven_ma = mesh.read_back_ma().reshape(-1, 2)
    for puc in np.flatnonzero(~as_noted.all(axis=1)).tolist():
        noted, driven = noted_ma.reshape(-1, 2)[puc].tolist(), driven_ma[puc].tolist()
        passing = tuple(circuit.name for circuit in circuits if puc in circuit.pucs)
        yield MeshDifference(puc, (noted[0], noted[1]), (driven[0], driven[1]), passing)


def _ended(outcome: str, state: CircuitState) -> dict[str, Any]:
    return {"entry": "ended", "utc": now_utc(), "outcome": outcome, **dataclasses.asdict(state)}


def _contents(entries: Sequence[Mapping[str, Any]], path: FilePath) -> tuple[CircuitState, UnfinishedChange | None]:
    """Return what the entries of a journal come to."""
    if entries and entries[0].get("format") != _FORMAT:
        raise ConfigError(f"{path} is no {_FORMAT} journal", hint="Choose another directory with --state.")
    state, begun = CircuitState(), None
    if any(not isinstance(entry.get("entry"), str) for entry in entries):
        raise ConfigError(f"{path}: an entry does not say what it is", hint=OTHER_VERSION)
    ended = [number for number, entry in enumerate(entries) if entry["entry"] == "ended"]
    if ended:
        state = _state(entries[ended[-1]], path)
    for entry in entries[ended[-1] + 1 if ended else 0 :]:
        if entry["entry"] == "begun":
            known = {name: entry[name] for name in _BEGUN if name in entry}
            begun = checked(UnfinishedChange, known, path)
    return state, begun


def _state(entry: Mapping[str, Any], path: FilePath) -> CircuitState:
    """Return what stands by an entry; leases of earlier versions end by the time of day alone."""
    document = {name: entry[name] for name in _STATE if name in entry}
    circuits = document.get("circuits")
    for circuit in circuits if isinstance(circuits, list) else ():
        if isinstance(circuit, dict) and "lease_ends_utc" in circuit:
            ends_utc = circuit.pop("lease_ends_utc")
            circuit["lease"] = None if ends_utc is None else {"clock": "", "ends_s": 0.0, "ends_utc": ends_utc}
    state = checked(CircuitState, document, path)
    for circuit in state.circuits:
        lease_utc = None if circuit.lease is None else circuit.lease.ends_utc
        for text in filter(None, (circuit.since_utc, circuit.seen_utc, lease_utc)):
            _check_utc(text, path)
    return state


_BEGUN = tuple(field.name for field in dataclasses.fields(UnfinishedChange))
_STATE = tuple(field.name for field in dataclasses.fields(CircuitState))


def _check_utc(text: str, path: FilePath) -> None:
    try:
        is_instant = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        is_instant = False
    if not is_instant:
        raise ConfigError(f"{path}: {text[:40]!r} is no instant of time", hint=OTHER_VERSION)
