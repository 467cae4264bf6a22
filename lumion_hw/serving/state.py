"""What is served of a bench at one moment: frozen values that PV Access, page and metrics read, and nothing else."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.fabric.spans import Span
from lumion_hw.mesh.layout.topology import State

PointValue = float | int | bool | str | NDArray[np.float64] | None
"""A number, a text, a truth or a one-dimensional array; ``None`` where nothing was ever read."""


class AlarmSeverity(enum.IntEnum):
    """How much a value is to be worried about; the numbers are those of EPICS."""

    NONE = 0
    MINOR = 1
    MAJOR = 2
    INVALID = 3


@dataclass(frozen=True)
class Point:
    """One reading or setting.

    Attributes:
        name: ``device.quantity``, with ``.channel`` where a device has several.
        value: Its latest value; an old one where ``severity`` says so.
        unit: Unit of numbers; empty for texts and truths.
        limits: Lowest and highest value that may be written; ``None`` where the device alone knows, and for readings.
        writable: Whether it can be set.
        taken_s: When it was read from the device, in seconds since 1970.
        severity: ``INVALID`` where the value is none, or old because its device has fallen silent.
        alarm: Why, in words; empty without an alarm.
        choices: Texts that may be written; empty for everything but choices.
        kind: What the value is, also where there is none at present.
    """

    name: str
    value: PointValue
    unit: str = ""
    limits: tuple[float, float] | None = None
    writable: bool = False
    taken_s: float = 0.0
    severity: AlarmSeverity = AlarmSeverity.NONE
    alarm: str = ""
    choices: tuple[str, ...] = ()
    kind: Literal["number", "flag", "choice", "array"] = "number"


@dataclass(frozen=True)
class ServedPath:
    """One way of a circuit through the mesh.

    Attributes:
        circuit: Name of the circuit.
        source: Port where the light enters.
        target: Port where it leaves.
        pucs: PUCs passed, in order.
        power_dbm: Power on the way: before the first PUC, between two, and behind the last, in the waveguide; one more
            than ``pucs``. ``None`` where it is not known. Between the ends it is reckoned from the calibration.
    """

    circuit: str
    source: int
    target: int
    pucs: tuple[int, ...]
    power_dbm: tuple[float | None, ...]


@dataclass(frozen=True)
class ServedMesh:
    """The mesh as ``lumion mesh show`` draws it.

    Attributes:
        states: State of each PUC that is in a known one, parked ones included.
        heat_mw: Power of both heaters of each PUC by the currents driven, shape ``(n_pucs,)``.
        parked: PUCs that are set so that stray light is led away, and that no circuit uses.
        dead: PUCs that the calibration names as broken.
        paths: Ways of the circuits that stand.
    """

    states: Mapping[int, State]
    heat_mw: tuple[float, ...]
    parked: frozenset[int]
    dead: frozenset[int]
    paths: tuple[ServedPath, ...]


@dataclass(frozen=True)
class ServedCircuit:
    """A circuit that stands.

    Attributes:
        name: Its ends, such as ``sfp-a:sfp-b``.
        source: Device name of the transmitting module.
        target: Device name of the receiving module.
        since_s: When it was set up, in seconds since 1970.
        age_s: For how long it has stood.
        lease_left_s: How long it is still wanted; ``None`` until it is disconnected.
        seen_s: When it was measured last, in seconds since 1970; ``None`` if never.
        proof: What was measured then, with units in the names (:class:`~lumion_hw.circuits.ActiveCircuit`).
        lost_db: Light lost since it was set up; ``None`` where there is none, or no reading.
        marks: What is to be known of it, such as ``degraded: ...``.
        fault: What has broken it, in words; empty while it carries light.
        unseen: Why it is not known how it is at present, so that ``proof`` and ``lost_db`` are old; empty while it is.
        severity: ``MAJOR`` if broken, ``INVALID`` if not known, ``MINOR`` if marked.
    """

    name: str
    source: str
    target: str
    since_s: float
    age_s: float
    lease_left_s: float | None
    seen_s: float | None
    proof: Mapping[str, float | None]
    lost_db: float | None
    marks: tuple[str, ...]
    fault: str
    severity: AlarmSeverity
    unseen: str = ""

    @property
    def margin_db(self) -> float | None:
        """Margin over the receiver's sensitivity as last measured; ``None`` while the circuit is broken."""
        return None if self.fault else self.proof.get("margin_db")

    @property
    def alarm(self) -> str:
        """Why there is a severity, in words; empty without one."""
        return self.fault or self.unseen or "; ".join(self.marks)

    @property
    def is_known(self) -> bool:
        """Whether it is known at present how much light it carries."""
        return not self.fault and not self.unseen


@dataclass(frozen=True)
class ServedEvent:
    """One line of the event log.

    Attributes:
        number: Grows by one from event to event, from 1.
        time_s: When it happened, in seconds since 1970.
        event: What.
        data: Particulars, units in the names.
    """

    number: int
    time_s: float
    event: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class ServedRecovery:
    """The last recovery of the fabric.

    Attributes:
        time_s: When it was told of, in seconds since 1970.
        failed: What was replaced; empty if a path was.
        spare: What stands in its place; empty if a path was replaced.
        words: What it was begun for.
        spans: Where its time went, in order; the detection first.
    """

    time_s: float
    failed: str
    spare: str
    words: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class ServedJob:
    """Something long that somebody asked for: a connect, a calibration, a recovery.

    Attributes:
        number: Grows with every job.
        what: ``connect``, ``disconnect``, ``calibrate``, ``recover``, ``fail``, ``repaired``.
        by: Who asked for it.
        begun_s: When it began, in seconds since 1970.
        stage: What it is at.
        done: Steps done of that.
        total: Steps of that; 0 where nobody knows.
        residuals: What the stages of a calibration leave unexplained, as far as they have come, by names with units
            (:func:`calibration.run.journaled_run.calibrate`).
        is_over: Whether it has ended.
        error: Why it failed, in words; empty if it did not.
        result: What it gave, as JSON knows it.
    """

    number: int
    what: str
    by: str
    begun_s: float
    stage: str = ""
    done: int = 0
    total: int = 0
    residuals: Mapping[str, float] = field(default_factory=dict)
    is_over: bool = False
    error: str = ""
    result: Any = None


@dataclass(frozen=True)
class ServedLease:
    """Who may change the bench.

    Attributes:
        owner: Name of the holder; empty if nobody holds it.
        number: Fencing number of this lease; it only grows, over restarts too.
        since_s: When it was taken, in seconds since 1970.
        age_s: For how long it has been held.
        left_s: When it ends by itself unless it is renewed, from now.
    """

    owner: str = ""
    number: int = 0
    since_s: float = 0.0
    age_s: float = 0.0
    left_s: float = 0.0


@dataclass(frozen=True)
class ServedHealth:
    """How the served bench itself is.

    Attributes:
        started_s: When the server began, in seconds since 1970.
        silent: Devices that do not answer: since when, in seconds since 1970, and why, by name.
        keeps: What is kept: ``nothing``, ``circuits``, or ``fabric``.
        trouble: Why circuits or fabric are not kept at present; empty while they are.
        faults: Latched faults of the mesh controller, each with what it measured; while there is one, all heaters are
            off and every circuit is dark.
    """

    started_s: float
    silent: Mapping[str, tuple[float, str]]
    keeps: str
    trouble: str = ""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServedState:
    """Everything that is served, at one moment.

    Attributes:
        number: Grows by one from state to state.
        time_s: The server's time, in seconds since 1970.
        bench: Name of the bench.
        points: Readings and settings by name, in the order of the bench.
        mesh: The mesh; ``None`` if the bench has none that takes currents.
        circuits: Circuits that stand.
        events: The last events, oldest first.
        recovery: The last recovery; ``None`` before the first.
        job: The job that runs, or else the last one; ``None`` before the first.
        lease: Who may change the bench.
        health: How the served bench itself is.
        record_sha256: Hash of the contents of the calibration record in use; empty without one.
        is_emulated: Whether no hardware is behind it.
    """

    number: int
    time_s: float
    bench: str
    points: Mapping[str, Point]
    mesh: ServedMesh | None
    circuits: tuple[ServedCircuit, ...]
    events: tuple[ServedEvent, ...]
    recovery: ServedRecovery | None
    job: ServedJob | None
    lease: ServedLease
    health: ServedHealth
    record_sha256: str = ""
    is_emulated: bool = False


@dataclass(frozen=True)
class MarginSample:
    """Margins of the circuits that stood at one time, for curves over time.

    Attributes:
        time_s: When, in seconds since 1970.
        margin_db: By name of the circuit; ``None`` where it carried no light, or nobody measured it.
    """

    time_s: float
    margin_db: Mapping[str, float | None]
