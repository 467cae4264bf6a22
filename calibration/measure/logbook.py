"""Access to the mesh that counts the effort, stores all readings, and continues an interrupted run.

An interrupted run is resumed by running it again: stored answers replace its first requests to the bench.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.measure.plug_requests import Fibre
from calibration.measure.probe import Probe
from calibration.model.arrays import Real
from calibration.model.observations import Observations, late_powers, only_reached
from lumion_hw.errors import CalibrationError

Kind = Literal["settings", "launched", "fibre", "tuned", "resistances", "laser", "meter"]

DARK = -1
"""Source of settings without light."""


@dataclass(frozen=True, eq=False)
class LogbookEntry:
    """A request to the bench and its answer.

    Attributes:
        kind: ``settings``: a batch of settings; the answer is photocurrents in mA, ``(n, M)``, NaN if saturated.
            ``launched``: launch power of a source; the answer is in dBm, ``(1, 1)``. ``fibre``: external meters; the
            answer is port and dBm, ``(n, 2)``. ``tuned``: tuning of a source; the answer is the reported frequency in
            Hz, ``(1, 1)``. ``resistances``: heater resistances in ohms, ``(1, 2E)``. ``laser`` and ``meter``: a fibre
            moved by hand; the answer is the port, ``(1, 1)``.
        source: Port of the source, or :data:`DARK`; for a fibre moved by hand, the requested port.
        currents_ma: Heater currents of the settings, shape ``(settings, heaters)``; otherwise empty.
        at_s: Time of the answer since the start of the run, by the clock of the bench.
        requested_hz: Requested frequency of a tuned source.
        spent_s: Duration of a batch without the source change; ``None`` if not recorded.
    """

    kind: Kind
    source: int
    currents_ma: Real
    answer: Real
    at_s: float = 0.0
    requested_hz: float = 0.0
    spent_s: float | None = None

    def has_same_request(self, other: LogbookEntry) -> bool:
        """Return whether two entries contain the same request."""
        one, two = ((each.kind, each.source, each.requested_hz, each.currents_ma.shape) for each in (self, other))
        return one == two and np.allclose(self.currents_ma, other.currents_ma, rtol=0.0, atol=_SAME_MA)

    def document(self) -> dict[str, Any]:
        """Return the entry as a JSON document."""
        return {
            "kind": self.kind,
            "source": self.source,
            "at_s": self.at_s,
            "asked_hz": self.requested_hz,
            "spent_s": self.spent_s,
            "currents_ma": _packed(self.currents_ma),
            "answer": _packed(self.answer),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> LogbookEntry:
        """Return the entry in a JSON document.

        Raises:
            CalibrationError: The document is not a valid entry.
        """
        try:
            kind: Kind = document["kind"]
            currents_ma, answer = _unpacked(document["currents_ma"]), _unpacked(document["answer"])
            at_s, requested_hz = float(document["at_s"]), float(document["asked_hz"])
            spent_s = document.get("spent_s")  # missing in journals of older versions
            spent_s = None if spent_s is None else float(spent_s)
            _check(kind, currents_ma, answer)
            return cls(kind, int(document["source"]), currents_ma, answer, at_s, requested_hz, spent_s)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CalibrationError(f"this is not a valid journal entry: {error!r}") from error


def _check(kind: Kind, currents_ma: Real, answer: Real) -> None:
    if not np.isfinite(currents_ma).all():
        raise ValueError("currents_ma holds NaN or infinity")
    if np.isinf(answer).any():
        raise ValueError("answer is infinite")
    if currents_ma.ndim != 2 or answer.ndim != 2:
        raise ValueError(f"currents_ma has the shape {currents_ma.shape}, but answer has the shape {answer.shape}")
    if kind == "settings" and len(currents_ma) != len(answer):
        raise ValueError(f"there are {len(answer)} answers for {len(currents_ma)} settings")


# Tolerance for currents that differ in the last bits because another processor calculated them.
_SAME_MA = 1e-9


def _packed(array: Real) -> dict[str, Any]:
    return {"shape": list(array.shape), "float64": base64.b64encode(array.astype("<f8").tobytes()).decode()}


def _unpacked(document: Mapping[str, Any]) -> Real:
    flat = np.frombuffer(base64.b64decode(document["float64"], validate=True), dtype="<f8").astype(np.float64)
    return flat.reshape([int(size) for size in document["shape"]])


def times_s(entries: Sequence[LogbookEntry]) -> Real:
    """Return the time of every setting in s since the start of the run, by the clock of the bench."""
    times, before_s = [], entries[0].at_s if entries else 0.0
    for entry in entries:
        if entry.kind == "settings":
            count = len(entry.currents_ma)
            # A sweep executed by the controller has one time for all its settings, which is divided evenly.
            spent_s = entry.at_s - before_s if entry.spent_s is None else entry.spent_s
            times.append(entry.at_s - spent_s * np.arange(count - 1, -1, -1) / count)
        before_s = entry.at_s
    return np.concatenate(times) if times else np.zeros(0)


@dataclass(frozen=True)
class HardwareTimes:
    """Durations of the steps of a setting (Sánchez-Jácome 2025).

    A controller that runs sweeps may be faster.

    Attributes:
        write_one_s: Time to write one channel.
        write_all_s: Time to write ``all_channels``; in between it grows linearly.
        all_channels: Number of channels of a full write.
        settle_s: Five thermal time constants.
        read_s: Time to read all monitors.
        input_change_s: Time to change the source; 0 if unknown.
        waited_s: Time from setting the heaters to the middle of the reading.
    """

    write_one_s: float = 0.014
    write_all_s: float = 0.0625
    all_channels: int = 160
    settle_s: float = 0.0005
    read_s: float = 0.0003
    input_change_s: float = 0.0
    waited_s: float = 0.00115

    @classmethod
    def waiting(cls, settle_s: float | None) -> HardwareTimes:
        """Return the published durations, with a wait of ``settle_s`` unless this is ``None``."""
        return cls() if settle_s is None else cls(settle_s=settle_s, waited_s=settle_s + 0.5 * cls.read_s)

    def setting_s(self, changed: NDArray[np.int64]) -> Real:
        """Return the duration of each setting in s, from the number of changed channels."""
        # A straight line between two published values, for one channel and for all channels.
        per_channel = (self.write_all_s - self.write_one_s) / (self.all_channels - 1)
        write = np.where(changed > 0, self.write_one_s + (np.maximum(changed, 1) - 1) * per_channel, 0.0)
        return write + self.settle_s + self.read_s

    def plan_s(self, plan: Observations) -> float:
        """Return the duration of settings in s, starting with all heaters and light off."""
        before = np.vstack([np.zeros(plan.currents_ma.shape[1]), plan.currents_ma[:-1]])
        changes = int((np.diff(plan.source) != 0).sum()) + 1
        seconds = self.setting_s((plan.currents_ma != before).sum(axis=1)).sum()
        return float(seconds) + changes * self.input_change_s


@dataclass(frozen=True)
class MeasurementEffort:
    """Effort of a calibration so far.

    Attributes:
        settings: Number of settings of heaters and light.
        source_changes: Number of changes of the source.
        hardware_s: Time of writes, settling, reads and source changes.
    """

    settings: int = 0
    source_changes: int = 0
    hardware_s: float = 0.0


class Logbook:
    """A probe (access to the mesh) that counts the effort and stores every answer.

    All methods that request an answer raise ``CalibrationError`` if the stored answers belong to a run with another
    plan, seed or mesh.

    Args:
        probe: Access to the mesh.
        times: Duration of the steps.
        before: Answers of an interrupted run, which are used before the bench.
        keep: Called with every new entry.

    Attributes:
        keep: Called with every new entry; may be replaced at any time.
        light_db: By source, the increase of the power in dB since the interrupted run, by which new readings are
            scaled.
        entries: All requests and answers.
        effort: Effort so far.
    """

    def __init__(
        self,
        probe: Probe,
        times: HardwareTimes | None = None,
        before: Sequence[LogbookEntry] = (),
        keep: Callable[[LogbookEntry], None] = lambda entry: None,
    ) -> None:
        self.probe = probe
        self.mesh, self.second_ports, self.heater_max_ma = probe.mesh, probe.second_ports, probe.heater_max_ma
        self.current_step_ma, self.monitor_step_ma = probe.current_step_ma, probe.monitor_step_ma
        self.measures_resistances = probe.measures_resistances
        self.times = times or HardwareTimes()
        self._before, self.keep = tuple(before), keep
        # The bench time continues where the interrupted run stopped, because drift is fitted over it.
        self._before_s = (self._before[-1].at_s if self._before else 0.0) - probe.elapsed_s()
        self._selected_port: int | None = None
        self._active_port: int | None = None
        self._is_active_port_known = False
        self._is_setting_applied = False
        self._began_s = 0.0
        self._applied: tuple[int | None, Real] | None = None
        self.effort = MeasurementEffort()
        self.light_db: Mapping[int, float] = {}
        self._launched_dbm: dict[int, float] = {}
        self._to_tune: dict[int, float] = {}
        self._plugged: dict[Fibre, int] = {}
        self._fibres_reported = False
        self.entries: list[LogbookEntry] = []
        self._n_readings = 0

    def __len__(self) -> int:
        return self._n_readings

    @property
    def sources(self) -> tuple[int, ...]:
        """Ports with a light source."""
        return self.probe.sources

    @property
    def monitors(self) -> tuple[int, ...]:
        """Port of every monitor."""
        return self.probe.monitors

    def tunable_hz(self, port: int) -> tuple[float, float] | None:
        """Return the lowest and highest frequency of a source; ``None`` if it is not tunable."""
        return self.probe.tunable_hz(port)

    def tune(self, port: int, frequency_hz: float) -> float:
        """Tune a source as :meth:`calibration.measure.probe.Probe.tune`; return the reported frequency."""
        self._launched_dbm.pop(port, None)
        # Stored answers do not tune the bench; the tuning is made up for before the first new request.
        self._to_tune[port] = frequency_hz

        def request() -> Real:
            del self._to_tune[port]
            self._is_active_port_known = False
            return np.array([[self.probe.tune(port, frequency_hz)]])

        return float(self._answer("tuned", port, request, requested_hz=frequency_hz)[0, 0])

    def plug(self, fibre: Fibre, port: int, reason: str = "") -> None:
        """Have a fibre that is moved by hand connected to a port, as :meth:`calibration.measure.probe.Probe.plug`."""

        def request() -> Real:
            self._is_active_port_known = self._is_setting_applied = False
            self._keep_fibres()
            self.probe.plug(fibre, port, reason)
            return np.array([[float(port)]])

        self._answer(fibre, port, request)
        self._plugged[fibre] = port

    def assume_plugged(self, fibre: Fibre, port: int) -> None:
        """Assume that a fibre that is moved by hand is connected to a port."""
        self._plugged[fibre] = port
        self.probe.assume_plugged(fibre, port)

    def _keep_fibres(self) -> None:
        if not self._fibres_reported:
            for fibre, port in self._plugged.items():
                self.probe.assume_plugged(fibre, port)
            self._fibres_reported = True

    def launched_dbm(self, port: int) -> float:
        """Return the launch power of a source in dBm, in the fibre at the facet, as first reported."""
        if port not in self._launched_dbm:

            def request() -> Real:
                self._light(port)
                return np.array([[self.probe.launched_dbm(port)]])

            self._launched_dbm[port] = float(self._answer("launched", port, request)[0, 0])
        return self._launched_dbm[port]

    def fibre_dbm(self) -> dict[int, float]:
        """Return the power in dBm that leaves each port with an external meter into its fibre."""

        def request() -> Real:
            self._return_to_setting()
            levels = np.array(sorted(self.probe.fibre_dbm().items()), dtype=np.float64).reshape(-1, 2)
            return levels - [0.0, self.light_db.get(self._source(), 0.0)]

        return {int(port): float(dbm) for port, dbm in self._answer("fibre", self._source(), request)}

    def heater_resistances_ohm(self) -> Real:
        """Return the resistance of every heater at the present setting in ohms; NaN if unknown."""

        def request() -> Real:
            self._return_to_setting()
            return self.probe.heater_resistances_ohm()[None]

        return np.squeeze(self._answer("resistances", self._source(), request), axis=0)

    def _return_to_setting(self) -> None:
        if self._applied is not None and not self._is_setting_applied:
            self._light(self._selected_port)
            self.probe.measure(self._applied[1])
            self._is_setting_applied = True

    def elapsed_s(self) -> float:
        """Return the time of the run, including the interrupted part, by the clock of the bench."""
        return self._before_s + self.probe.elapsed_s()

    def rest(self, duration_s: float) -> None:
        """Wait without a change of the setting. A resumed run does not wait for readings that it has already."""
        if len(self.entries) >= len(self._before):
            self._return_to_setting()
            self.probe.rest(duration_s)
        self.effort = replace(self.effort, hardware_s=self.effort.hardware_s + duration_s)

    def switch_everything_off(self) -> None:
        """Switch heaters and sources off."""
        self._is_active_port_known = self._is_setting_applied = False
        self.probe.switch_everything_off()

    def light_only_port(self, port: int | None) -> None:
        """Select the source that will be on from the next reading on; ``None`` for no light."""
        self._selected_port = port

    def driven_ma(self, currents_ma: Real) -> Real:
        """Return heater currents of any shape, rounded to the steps and range of the controller."""
        step_ma = self.current_step_ma
        if not step_ma:
            return currents_ma
        # The last step below the limit, with a tolerance for rounding: a current just above it would be rejected.
        max_steps = np.floor(self.heater_max_ma / step_ma * (1.0 + 1e-12))
        return np.minimum(np.rint(currents_ma / step_ma), max_steps) * step_ma

    def measure(self, currents_ma: Real) -> Real:
        """Set the heaters, let them settle and read all monitors; NaN if saturated.

        The stored currents are rounded to the steps of the controller.
        """
        driven_ma = self.driven_ma(currents_ma)
        return np.squeeze(self._measured_batch(driven_ma[None], lambda: self.probe.measure(driven_ma)[None]), axis=0)

    def measure_batch(self, currents_ma: Real) -> Real:
        """Measure a batch of settings, ``(settings, heaters)``, with the selected source."""
        driven_ma = self.driven_ma(currents_ma)
        return self._measured_batch(driven_ma, lambda: self.probe.measure_batch(driven_ma))

    def _measured_batch(self, currents_ma: Real, measure: Callable[[], Real]) -> Real:
        def request() -> Real:
            """Measure, and return the readings scaled to the light power before an interruption."""
            self._light(self._selected_port)
            self._began_s = self.elapsed_s()
            self._is_setting_applied = False  # after a failure here the state of the heaters is unknown
            readings = measure()
            self._is_setting_applied = True
            # A resumed run aligns the polarization anew. Scaled to the old power, all readings belong to one run.
            return np.asarray(readings * 10.0 ** (-0.1 * self.light_db.get(self._source(), 0.0)))

        answers = self._answer("settings", self._source(), request, currents_ma.copy())
        for setting in currents_ma:
            self._count(setting)
        self._n_readings += len(currents_ma)
        return answers

    def _answer(
        self,
        kind: Kind,
        source: int,
        request: Callable[[], Real],
        currents_ma: Real | None = None,
        requested_hz: float = 0.0,
    ) -> Real:
        number = len(self.entries)
        currents_ma = np.zeros((0, 2 * self.mesh.n_pucs)) if currents_ma is None else currents_ma
        entry = LogbookEntry(kind, source, currents_ma, np.zeros((0, 0)), requested_hz=requested_hz)
        if number < len(self._before):
            old = self._before[number]
            # Requests follow from plan, seed and readings: a different request means that one of them has changed.
            if not old.has_same_request(entry):
                raise CalibrationError(
                    f"entry {number} of the interrupted run answers a different request",
                    hint="Resume with the plan, the seed and the bench of the interrupted run, or start a new run.",
                )
            entry = old
        else:
            answer, at_s = request(), self.elapsed_s()
            spent_s = at_s - self._began_s if kind == "settings" else None
            entry = replace(entry, answer=answer, at_s=at_s, spent_s=spent_s)
            self.keep(entry)
        self.entries.append(entry)
        return entry.answer

    def _source(self) -> int:
        return DARK if self._selected_port is None else self._selected_port

    def _light(self, port: int | None) -> None:
        if self._is_active_port_known and self._active_port == port:
            return
        self._is_active_port_known = False
        self._keep_fibres()
        for other in sorted(self._to_tune):
            self.probe.tune(other, self._to_tune[other])
        self._to_tune.clear()
        self.probe.light_only_port(port)
        self._active_port, self._is_active_port_known = port, True

    def _count(self, currents_ma: Real) -> None:
        # Reading the same setting again costs only the time of a read.
        moved = self._applied is None or self._applied[0] != self._selected_port
        old = np.zeros_like(currents_ma) if self._applied is None else self._applied[1]
        changed = int((old != currents_ma).sum())
        self._applied = (self._selected_port, currents_ma.copy())
        setting_s = self.times.setting_s(np.array(changed)) if changed else self.times.read_s
        self.effort = MeasurementEffort(
            self.effort.settings + int(moved or changed > 0),
            self.effort.source_changes + int(moved),
            self.effort.hardware_s + (float(setting_s) + moved * self.times.input_change_s),
        )

    def observations(self, first: int = 0, last: int | None = None, *, unreached: bool = False) -> Observations:
        """Return the settings and readings in order of time; settings without light have source -1.

        Frequencies are relative to the first tuned frequency of the source. Monitors that no light of the source can
        reach read stray light only, which is left out unless ``unreached``.
        """
        batches = [entry for entry in self.entries if entry.kind == "settings"]
        width, monitors = 2 * self.probe.mesh.n_pucs, self.probe.monitors
        currents = np.concatenate([np.zeros((0, width)), *(batch.currents_ma for batch in batches)])
        reading = np.concatenate([np.zeros((0, len(monitors))), *(batch.answer for batch in batches)])
        lengths = [len(batch.currents_ma) for batch in batches]
        source = np.repeat([batch.source for batch in batches], lengths).astype(np.int64)
        detuning, meter_port = (np.repeat(values, lengths) for values in self._detunings_hz_and_meter_ports())
        late = late_powers(currents, times_s(self.entries), self.times.waited_s)
        saturated = np.isnan(reading)
        if moved := {entry.source for entry in self.entries if entry.kind == "meter"}:
            # A port that the meter has not reached yet has no reading at all.
            by_hand = np.isin(monitors, sorted(moved)) | saturated.all(axis=0)
            saturated &= ~by_hand | (np.array(monitors) == meter_port[:, None])
        observations = Observations(currents, source, monitors, reading, saturated, detuning, late)
        if not unreached:
            observations = only_reached(observations, self.mesh, self.second_ports)
        return observations[slice(first, last)]

    def _detunings_hz_and_meter_ports(self) -> tuple[list[float], list[int]]:
        """Return, for every batch, the detuning of its source and the port of the meter that is moved by hand."""
        first_hz: dict[int, float] = {}
        last_hz: dict[int, float] = {}
        detunings_hz, meter_ports, meter_port = list[float](), list[int](), -1
        for entry in self.entries:
            if entry.kind == "tuned":
                last_hz[entry.source] = float(entry.answer[0, 0])
                # Absolute frequencies are known to a few GHz only, frequency differences of a source much better.
                first_hz.setdefault(entry.source, last_hz[entry.source])
            elif entry.kind == "meter":
                meter_port = entry.source
            elif entry.kind == "settings":
                detunings_hz.append(last_hz.get(entry.source, 0.0) - first_hz.get(entry.source, 0.0))
                meter_ports.append(meter_port)
        return detunings_hz, meter_ports
