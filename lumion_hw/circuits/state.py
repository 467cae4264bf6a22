"""Journal of connected circuits, which lets circuits outlive the program that set them up.

Every change has two entries: ``begun``, written before anything changes, with the heater currents before the change;
and ``ended``, with all active circuits. If a program is killed in between, the next one compares the heater currents
with the journal (:func:`compare_with_mesh`).
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.mesh_access import MeshAccess
from lumion_hw.circuits.lease_clock import LeaseClock, LeaseEnd
from lumion_hw.circuits.plan.difference import CircuitDifference
from lumion_hw.circuits.plan.ends import circuit_ends
from lumion_hw.circuits.plan.link_budgets import RoutedCircuit, with_budgets
from lumion_hw.circuits.plan.planned import ArmTrim, CircuitPlan, PlannedCircuit
from lumion_hw.circuits.plan.planning_mesh import planning_mesh
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.circuits.proof import CircuitProof
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import rename_key
from lumion_hw.files.reading import path_exists
from lumion_hw.interfaces.wiring import InputPath, OutputPath, Wiring
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing import Path, Routing, states_for_paths
from lumion_hw.storage.line_journal import OTHER_VERSION, LineJournal, OwnJournal, parse_entry, read_lines

JOURNAL = "circuits.jsonl"
"""File name of the journal in the state directory."""
_FORMAT = "lumion-circuits 1"
_FILE_KIND = "the journal of circuits"


class MeshVerdict(StrEnum):
    """Result of comparing the driven heater currents with the journal."""

    AS_LEFT = "as left"
    """The heaters are driven as after the last change that was finished."""
    AS_BEFORE = "as before"
    """A change was not finished, and the heaters are driven as before it."""
    DARK = "dark"
    """No heater is driven, and no circuit is active."""
    CHANGED = "changed"
    """A change was not finished, and the heaters are driven differently than before it."""
    DIFFERENT = "different"
    """The heaters are driven in another way: another program has changed the mesh, or a heater is broken."""


@dataclass(frozen=True)
class ActiveArm:
    """One path of an active circuit.

    Attributes:
        trim: Loss added to the arm, or ``None``.
    """

    path: Path
    trim: ArmTrim | None = None


@dataclass(frozen=True)
class ActiveCircuit:
    """A circuit as recorded in the journal.

    Attributes:
        arms: Paths of the circuit through the mesh; two for two polarizations.
        since_utc: Time when the circuit was set up, ISO 8601.
        lease: End of the circuit's lease; ``None`` without a lease.
        seen_utc: Time of the circuit's last measurement.
        proof: Results of that measurement: ``launch_dbm``, ``measured_loss_db``, ``predicted_loss_db``,
            ``received_dbm``, ``margin_db``, ``overload_margin_db``; for two polarizations also ``pdl_db``, ``dgd_ps``
            and ``prefec_ber``. ``None`` where there was no number.
        marks: Warnings, such as ``degraded: ...`` and ``stale: ...``.
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
        """Name of the circuit, such as ``sfp-a:sfp-b``."""
        return self.request.name

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the circuit through the mesh."""
        return tuple(arm.path for arm in self.arms)

    @property
    def pucs(self) -> tuple[int, ...]:
        """PUCs of all paths of the circuit."""
        return tuple(puc for path in self.paths for puc in path.pucs)

    def lease_left_s(self, time: LeaseClock) -> float | None:
        """Return the remaining time of the circuit's lease in seconds, 0 after its end; ``None`` without a lease."""
        return None if self.lease is None else max(time.left_s(self.lease), 0.0)

    def has_expired(self, time: LeaseClock) -> bool:
        """Return whether the circuit's lease has ended."""
        return self.lease is not None and time.left_s(self.lease) <= 0.0

    def age_s(self, time: datetime) -> float:
        """Return the time since the circuit was set up, in seconds."""
        return max((time - datetime.fromisoformat(self.since_utc)).total_seconds(), 0.0)


@dataclass(frozen=True)
class CircuitState:
    """All active circuits of a bench, and the mesh setting for them.

    Attributes:
        currents_ma: Heater currents of the setting, shape ``(2 n_pucs,)``; empty if nothing was ever driven.
        states: States of the PUCs that can be set.
        record: Path of the calibration record for which the circuits were planned.
    """

    circuits: tuple[ActiveCircuit, ...] = ()
    currents_ma: tuple[float, ...] = ()
    states: Mapping[int, State] = field(default_factory=dict)
    record: str | None = None

    def circuit(self, name: str) -> ActiveCircuit:
        """Return an active circuit by its name.

        Raises:
            ConfigError: There is no circuit of this name.
        """
        for circuit in self.circuits:
            if circuit.name == name:
                return circuit
        names = ", ".join(circuit.name for circuit in self.circuits)
        raise ConfigError(f"no circuit {name} is connected", hint=f"Connected circuits: {names or 'none'}.")


@dataclass(frozen=True)
class UnfinishedChange:
    """A change of circuits that was not finished.

    Attributes:
        kind: Kind of change, such as ``connect``.
        circuits: Names of the circuits to be changed.
        since_utc: Time when the change was begun.
        before_ma: Heater currents before the change.
        pid: ID of the process that began the change.
    """

    kind: str
    circuits: tuple[str, ...]
    since_utc: str
    before_ma: tuple[float, ...]
    pid: int

    def document(self) -> dict[str, Any]:
        """Return the change as a JSON document, in which the kind of change is called ``what``."""
        return rename_key(dataclasses.asdict(self), "kind", "what")


@dataclass(frozen=True)
class MeshDifference:
    """A PUC whose heaters are not driven as recorded.

    Attributes:
        noted_ma: Recorded currents of the upper and lower heater.
        driven_ma: Driven currents of the upper and lower heater.
        circuits: Names of the circuits that use the PUC.
    """

    puc: int
    noted_ma: tuple[float, float]
    driven_ma: tuple[float, float]
    circuits: tuple[str, ...]

    def __str__(self) -> str:
        """Return the difference between recorded and driven currents as text."""
        noted, driven = (" and ".join(f"{ma:.3f}" for ma in pair) for pair in (self.noted_ma, self.driven_ma))
        users = f", used by {', '.join(self.circuits)}" if self.circuits else ", used by no circuit"
        return f"PUC {self.puc}: {driven} mA driven, {noted} mA recorded{users}"


@dataclass(frozen=True)
class MeshFinding:
    """Result of comparing the mesh with the journal.

    Attributes:
        differences: PUCs whose heaters are not driven as recorded.
        unfinished: The unfinished change, if there is one.
    """

    verdict: MeshVerdict
    differences: tuple[MeshDifference, ...] = ()
    unfinished: UnfinishedChange | None = None

    def __str__(self) -> str:
        """Return the result as text: a sentence, and a line per PUC."""
        text = f"the mesh is {self.verdict.value}"
        if self.unfinished is not None:
            change = f"{self.unfinished.kind} {' '.join(self.unfinished.circuits)}".rstrip()
            text += (
                f"; {change!r}, begun {self.unfinished.since_utc} by process {self.unfinished.pid}, was not finished"
            )
        return "\n".join([text, *(f"  {difference}" for difference in self.differences)])


class CircuitJournal(OwnJournal):
    """Journal of a bench's connected circuits, open for writing; the caller must hold the bench's lock.

    Args:
        directory: State directory of the bench; created if it does not exist.
        mesh_sha256: Hash that identifies the mesh.

    Raises:
        ConfigError: The journal belongs to another bench or mesh or is damaged, or the directory is not writable.
        LumionError: The disk is full.
    """

    def __init__(self, directory: AnyPath, bench: str, mesh_sha256: str) -> None:
        header = {"entry": "header", "format": _FORMAT, "bench": bench, "mesh_sha256": mesh_sha256}
        super().__init__(LineJournal(FilePath(directory) / JOURNAL, _FILE_KIND, header, _is_complete))
        self.state, self.unfinished = _read_entries(self._lines.take_existing_entries(), self._lines.path)

    @property
    def path(self) -> FilePath:
        """Path of the journal file."""
        return self._lines.path

    def begin(self, kind: str, circuits: Sequence[str], before_ma: NDArray[np.float64]) -> None:
        """Record that a change is about to begin. Do not change anything before this returns.

        Args:
            kind: Kind of change, such as ``connect``.
            circuits: Names of the circuits to be changed.
            before_ma: Heater currents driven now.

        Raises:
            LumionError: The disk is full; nothing was changed.
            ConfigError: Another change was begun and not finished.
        """
        if self.unfinished is not None:
            raise ConfigError(f"{self.path}: a change was begun {self.unfinished.since_utc} and not finished")
        # Written before anything changes: if the program dies now, the next one can restore these currents.
        unfinished = UnfinishedChange(kind, tuple(circuits), now_utc(), tuple(before_ma.tolist()), os.getpid())
        self._lines.append({"entry": "begun", **unfinished.document()})
        self.unfinished = unfinished

    def end(self, outcome: str, state: CircuitState) -> None:
        """Record the outcome of a change, and all circuits that are active now.

        Args:
            outcome: ``done``, or the reason of a failure.
            state: All circuits that are active now.

        Raises:
            LumionError: The disk is full; the change remains unfinished.
        """
        entry = {"entry": "ended", "utc": now_utc(), "outcome": outcome, **dataclasses.asdict(state)}
        self._lines.append(entry)
        self.state, self.unfinished = state, None
        self._lines.restart_if_large(entry)

    def note(self, state: CircuitState) -> None:
        """Record new readings, warnings and currents. Raises the errors of :meth:`end`."""
        self.end("kept", state)


def read_state(directory: AnyPath) -> tuple[CircuitState, UnfinishedChange | None]:
    """Return the circuits in a bench's journal and the unfinished change, if any; no circuits without a journal.

    Raises:
        ConfigError: The journal is damaged.
    """
    path = FilePath(directory) / JOURNAL
    if not path_exists(path, _FILE_KIND):
        return CircuitState(), None
    return _read_entries(read_lines(path, _FILE_KIND, _is_complete).entries, path)


def state_directory(bench: str, controller: str) -> FilePath:
    """Return the default state directory of a bench and its controller, under ``$XDG_STATE_HOME``."""
    home = os.environ.get("XDG_STATE_HOME")
    base = FilePath(home) if home else FilePath.home() / ".local" / "state"
    # An address may contain colons and slashes, which file names must not.
    return base / "lumion" / re.sub(r"[^\w.-]+", "-", f"{bench}-{controller}")


def compare_with_mesh(mesh: MeshAccess, state: CircuitState, unfinished: UnfinishedChange | None) -> MeshFinding:
    """Compare the driven heater currents with the journal.

    Args:
        mesh: The mesh. If its controller measures output currents, these are compared too.
        state: State after the last finished change.
        unfinished: A later change that was not finished.

    Raises:
        LumionError: Reading back failed.
    """
    dark = np.zeros(len(mesh.heater_channels))
    noted_ma = np.array(state.currents_ma) if state.currents_ma else dark
    candidates = [(MeshVerdict.AS_LEFT if unfinished is None else MeshVerdict.AS_BEFORE, noted_ma)]
    if unfinished is not None:
        candidates.append((MeshVerdict.AS_BEFORE, np.array(unfinished.before_ma)))
    candidates.append((MeshVerdict.DARK, dark))
    for verdict, currents_ma in candidates:
        if len(currents_ma) == len(dark) and mesh.is_driving(currents_ma).all():
            return MeshFinding(verdict, unfinished=unfinished)
    if unfinished is None and mesh.is_partly_off(noted_ma):
        return MeshFinding(MeshVerdict.DARK)
    return MeshFinding(
        MeshVerdict.DIFFERENT if unfinished is None else MeshVerdict.CHANGED,
        tuple(_differences(mesh, noted_ma, state.circuits)),
        unfinished,
    )


def active_circuit(
    circuit: PlannedCircuit, proof: CircuitProof | None, time: LeaseClock, before: ActiveCircuit | None = None
) -> ActiveCircuit:
    """Return the journal's record of a circuit.

    Args:
        circuit: The planned circuit.
        proof: Measurement of the circuit, if there is one.
        time: Clock for lease and age.
        before: Earlier record of the circuit, which supplies age and lease.
    """
    lease_s, time_utc = circuit.request.lease_s, _utc_text(time.utc())
    if before is None:
        before = ActiveCircuit(circuit.request, (), time_utc, None if lease_s is None else time.lease_end(lease_s))
    measured = dict(before.proof) if proof is None else proof_document(proof)
    seen_utc = before.seen_utc if proof is None else time_utc
    arms = tuple(ActiveArm(arm.path, arm.trim) for arm in circuit.arms)
    return dataclasses.replace(before, request=circuit.request, arms=arms, proof=measured, seen_utc=seen_utc)


def proof_document(proof: CircuitProof) -> dict[str, float | None]:
    """Return the measured values of a circuit as a JSON document."""
    numbers: dict[str, float | None] = {
        "launch_dbm": proof.launch_dbm,
        "measured_loss_db": proof.measured_loss_db,
        "predicted_loss_db": proof.circuit.budget.mesh_loss_db,
        "received_dbm": proof.received_dbm,
        "margin_db": proof.margin_db,
        "overload_margin_db": proof.overload_margin_db,
    }
    accepted = proof.acceptance
    if accepted is not None:
        numbers |= {"pdl_db": accepted.pdl_db, "dgd_ps": accepted.dgd_ps, "prefec_ber": accepted.prefec_ber}
    if proof.levels is not None:
        numbers |= {"arms_differ_db": proof.levels.imbalance_db, "arms_differ_sigma_db": proof.levels.sigma_db}
    # Decibels with 3 decimals; bit error ratios with 12.
    digits = {"prefec_ber": 12}
    return {
        name: None if number is None else round(float(number), digits.get(name, 3)) for name, number in numbers.items()
    }


def change_document(difference: CircuitDifference, proofs: Iterable[CircuitProof]) -> dict[str, Any]:
    """Return a change of circuits as a JSON document, with the measured values of the new circuits."""
    measured = {proof.circuit.request.name: proof_document(proof) for proof in proofs}
    return difference.document() | {"measured": measured}


def restored_plan(
    model: BenchModel, record: CalibrationRecord, state: CircuitState, wiring: Wiring | None = None
) -> CircuitPlan | None:
    """Return the plan of recorded circuits with new link budgets, or ``None`` without circuits. Uses no device.

    Args:
        model: The bench.
        record: Calibration of the mesh.
        state: The recorded circuits.
        wiring: Fibres with the settings of the devices in them; by default those of the bench file.

    Raises:
        CircuitError: The modules of a circuit no longer fit each other.
        ConfigError: The fibres of a circuit have changed in the bench file.
    """
    if not state.circuits:
        return None
    _check_matches_mesh(record.mesh, state)
    wiring, mesh, planning = wiring or model.to_wiring(), record.mesh, planning_mesh(record)
    routed = []
    for circuit in state.circuits:
        entries, exits = zip(*(_fibres_of(wiring, circuit, path) for path in circuit.paths), strict=True)
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


def _check_matches_mesh(mesh: MeshTopology, state: CircuitState) -> None:
    pucs = {*state.states, *(puc for circuit in state.circuits for puc in circuit.pucs)}
    ports = {port for circuit in state.circuits for path in circuit.paths for port in (path.source, path.target)}
    invalid = [f"PUC {puc}" for puc in pucs if not 0 <= puc < mesh.n_pucs]
    invalid += [f"port {port}" for port in ports if not 0 <= port < mesh.n_ports]
    if len(state.currents_ma) != 2 * mesh.n_pucs:
        invalid.append(f"{len(state.currents_ma)} heater currents")
    if invalid:
        raise ConfigError(
            f"the journal of circuits has {', '.join(invalid)}, but this mesh has {mesh.n_pucs} PUCs and "
            f"{mesh.n_ports} ports",
            hint=OTHER_VERSION,
        )


def _fibres_of(wiring: Wiring, circuit: ActiveCircuit, path: Path) -> tuple[InputPath, OutputPath]:
    request = circuit.request
    entries = [entry for entry in wiring.inputs if (entry.port, entry.transponder) == (path.source, request.source)]
    exits = [output for output in wiring.outputs if (output.port, output.transponder) == (path.target, request.target)]
    if not entries or not exits:
        raise ConfigError(
            f"circuit {circuit.name} was connected from port {path.source} to port {path.target}, where this bench "
            "file has other fibres",
            hint="Use the bench file it was connected with, or `lumion disconnect BENCH --all`.",
        )
    return entries[0], exits[0]


def now_utc() -> str:
    """Return the current time in UTC, ISO 8601."""
    return _utc_text(datetime.now(UTC))


def _utc_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def _differences(
    mesh: MeshAccess, noted_ma: NDArray[np.float64], circuits: Sequence[ActiveCircuit]
) -> Iterator[MeshDifference]:
    as_noted = mesh.is_driving(noted_ma).reshape(-1, 2)
    driven_ma = mesh.read_back_ma().reshape(-1, 2)
    for puc in np.flatnonzero(~as_noted.all(axis=1)).tolist():
        noted, driven = noted_ma.reshape(-1, 2)[puc].tolist(), driven_ma[puc].tolist()
        passing = tuple(circuit.name for circuit in circuits if puc in circuit.pucs)
        yield MeshDifference(puc, (noted[0], noted[1]), (driven[0], driven[1]), passing)


def _read_entries(entries: Sequence[Mapping[str, Any]], path: FilePath) -> tuple[CircuitState, UnfinishedChange | None]:
    if entries and entries[0].get("format") != _FORMAT:
        raise ConfigError(f"{path} is not a {_FORMAT} journal", hint="Choose another directory with --state.")
    state, unfinished = CircuitState(), None
    if any(not isinstance(entry.get("entry"), str) for entry in entries):
        raise ConfigError(f"{path}: an entry has no type", hint=OTHER_VERSION)
    ended = [number for number, entry in enumerate(entries) if entry["entry"] == "ended"]
    if ended:
        state = _parse_state(entries[ended[-1]], path)
    # Every ended entry contains the complete state, so only a change that begins after the last one can be unfinished.
    for entry in entries[ended[-1] + 1 if ended else 0 :]:
        if entry["entry"] == "begun":
            # Journals contain the kind of change as "what".
            stored = rename_key(entry, "what", "kind")
            values = {name: stored[name] for name in _UNFINISHED_FIELDS if name in stored}
            unfinished = parse_entry(UnfinishedChange, values, path)
    return state, unfinished


def _parse_state(entry: Mapping[str, Any], path: FilePath) -> CircuitState:
    document = {name: entry[name] for name in _STATE_FIELDS if name in entry}
    circuits = document.get("circuits")
    for circuit in circuits if isinstance(circuits, list) else ():
        if isinstance(circuit, dict) and "lease_ends_utc" in circuit:
            ends_utc = circuit.pop("lease_ends_utc")
            circuit["lease"] = None if ends_utc is None else {"clock": "", "ends_s": 0.0, "ends_utc": ends_utc}
    state = parse_entry(CircuitState, document, path)
    for circuit in state.circuits:
        lease_utc = None if circuit.lease is None else circuit.lease.ends_utc
        for text in filter(None, (circuit.since_utc, circuit.seen_utc, lease_utc)):
            _check_utc(text, path)
    return state


_UNFINISHED_FIELDS = tuple(field.name for field in dataclasses.fields(UnfinishedChange))
_STATE_FIELDS = tuple(field.name for field in dataclasses.fields(CircuitState))


def _check_utc(text: str, path: FilePath) -> None:
    try:
        is_instant = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        is_instant = False
    if not is_instant:
        raise ConfigError(f"{path}: {text[:40]!r} is not a valid time with a time zone", hint=OTHER_VERSION)


def _is_complete(entry: Mapping[str, Any]) -> bool:
    return entry.get("entry") == "ended"
