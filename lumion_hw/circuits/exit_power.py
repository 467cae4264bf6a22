"""The light that leaves the mesh for receivers, as meters on taps or the mesh's own monitors read it.

Circuits side by side ask for readings at the same time. An instrument reads all its channels at once, so one look
serves everybody who has asked before it began.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.planned import PlannedCircuit
from lumion_hw.clock import Clock, ClockEvent
from lumion_hw.errors import CircuitError, DeviceError
from lumion_hw.interfaces import PowerReading
from lumion_hw.interfaces.wiring import OutputPath
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.quantities import dbm_from_w, w_from_dbm

Reading = TypeVar("Reading")

_SCANS = 4
"""Scans of the monitors averaged for a reading: half of the noise of one, and still under a millisecond."""


@dataclass
class _Look(Generic[Reading]):
    """One look at an instrument, to come or done.

    Attributes:
        may_begin: Told to the first of those who wait for it, who then looks for all.
        is_done: Told to the others.
    """

    may_begin: ClockEvent
    is_done: ClockEvent
    channels: list[int] = field(default_factory=list)
    seen: Mapping[int, Reading] = field(default_factory=dict)
    error: BaseException | None = None


class SharedInstrument(Generic[Reading]):
    """An instrument that several jobs read: who asks while a look is under way waits for the next one.

    Args:
        clock: The bench's clock.
        look: Takes a reading of each of these channels, and of others where they come with it.
    """

    def __init__(self, clock: Clock, look: Callable[[Collection[int]], Mapping[int, Reading]]) -> None:
        self._clock = clock
        self._look = look
        self._guard = threading.Lock()  # never held while time passes
        self._is_busy = False
        self._next = self._look_to_come()

    def read(self, channel: int) -> Reading:
        """Return a reading that began after this call. Raises what the instrument raises."""
        with self._guard:
            look, leads, waits = self._next, not self._next.channels, self._is_busy
            look.channels.append(channel)
            self._is_busy = True
        if not leads:
            look.is_done.wait()
        else:
            if waits:
                look.may_begin.wait()
            self._clock.sleep(0.0)  # whoever asks at this very instant is served as well
            self._take(look)
        if look.error is not None:
            raise look.error
        return look.seen[channel]

    def _look_to_come(self) -> _Look[Reading]:
        return _Look(self._clock.event(), self._clock.event())

    def _take(self, look: _Look[Reading]) -> None:
        """Look for all who wait, then let those begin who have come meanwhile."""
        with self._guard:
            self._next = self._look_to_come()
        try:
            look.seen = self._look(sorted(set(look.channels)))
        except BaseException as error:  # noqa: BLE001 - raised again to each who asked
            look.error = error
        with self._guard:
            self._is_busy = bool(self._next.channels)
            following = self._next
        look.is_done.set()
        if following.channels:
            following.may_begin.set()


class OutputPowerReader:
    """Power at exits of the mesh.

    Args:
        bench: The bench.
        record: Calibration of its mesh: losses behind the exits, and what its monitors say of a milliwatt.
    """

    def __init__(self, bench: Bench, record: CalibrationRecord) -> None:
        self._bench = bench
        self._record = record
        self._meters = {
            name: SharedInstrument(bench.clock, _meter_look(bench, name))
            for name in dict.fromkeys(out.meter for out in bench.wiring.outputs)
            if name is not None
        }
        self._monitors = SharedInstrument(bench.clock, self._monitor_look)

    def read_w(self, out: OutputPath) -> float:
        """Return the power that leaves the mesh for a receiver: by the meter on its tap, or by the mesh's own monitor.

        Raises:
            CircuitError: There is neither.
            DeviceError: The reading is no number.
        """
        if out.meter is not None and out.meter_channel is not None:
            return self._meters[out.meter].read(out.meter_channel).power_w
        if out.port not in self._bench.mesh.monitor_ports:
            raise CircuitError(f"port {out.port} has neither a meter nor a monitor: its light cannot be proven")
        return self._monitor_w(out.port)

    def read_fastest_w(self, out: OutputPath) -> float:
        """Return a power in proportion to it, from whichever answers first: a scan of the monitors, or the meter.

        Raises as :meth:`read_w`.
        """
        return self._monitor_w(out.port) if self._has_photodiode(out) else self.read_w(out)

    def expected_fast_reading_w(self, out: OutputPath, fibre_dbm: float) -> float:
        """Return what :meth:`read_fastest_w` reads for a power in the fibre at the mesh facet."""
        if out.meter is None or self._has_photodiode(out):
            return w_from_dbm(fibre_dbm + self.facet_loss_db(out.port))
        return w_from_dbm(fibre_dbm - out.loss_db) * out.tap_fraction

    def budgeted_photocurrent_ma(self, circuit: PlannedCircuit) -> float | None:
        """Return the photocurrent at a circuit's exit that its budget promises; ``None`` without a photodiode."""
        if not self._has_photodiode(circuit.exit):
            return None
        budget, entry, port = circuit.budget, circuit.entry, circuit.exit.port
        fibre_dbm = budget.launch_dbm + entry.gain_db - entry.loss_db - budget.mesh_loss_db
        output_powers_w = w_from_dbm(fibre_dbm + self.facet_loss_db(port))
        return output_powers_w * 1e3 * self._responsivity_a_per_w(port)

    def _has_photodiode(self, out: OutputPath) -> bool:
        # A controller without photodiodes has the meters stand in for them: they tell the same, no sooner.
        return self._bench.mesh.meters is None and out.port in self._bench.mesh.monitor_ports

    def _monitor_w(self, port: int) -> float:
        responsivity = self._responsivity_a_per_w(port)
        if not responsivity > 0.0:
            raise CircuitError(
                f"the calibration record says that the photodiode at port {port} shows no light "
                f"({responsivity:g} mA per mW): its light cannot be proven",
                hint="Put a meter on a tap at this port, or calibrate again.",
            )
        current_ma = self._monitors.read(port)
        if math.isnan(current_ma):
            raise DeviceError(f"the monitor at port {port} is saturated")
        return current_ma * 1e-3 / responsivity

    def fibre_level_dbm(self, out: OutputPath) -> float | None:
        """Return the power in the fibre at the mesh facet, ``None`` in the dark or out of range."""
        try:
            power_w = self.read_w(out)
        except DeviceError:
            return None
        if not power_w > 0.0:
            return None
        level_dbm = dbm_from_w(power_w)
        # The meter sees the tap's share of what is left after the fibre: back to the facet.
        if out.meter is not None:
            return level_dbm - 10.0 * math.log10(out.tap_fraction) + out.loss_db
        return level_dbm - self.facet_loss_db(out.port)

    def fibre_levels_dbm(self, outputs: Sequence[OutputPath], *, monitors_only: bool = False) -> list[float | None]:
        """Return the same for several exits by one scan of the mesh's monitors; a meter takes ten times as long.

        Args:
            outputs: The exits.
            monitors_only: Leave out exits without a monitor instead of asking their meters.
        """
        output_powers_w = self.output_powers_w() if outputs else {}
        found: list[float | None] = []
        for out in outputs:
            if out.port in output_powers_w:
                power_w = output_powers_w[out.port]
                found.append(dbm_from_w(power_w) - self.facet_loss_db(out.port) if power_w > 0.0 else None)
            else:
                found.append(None if monitors_only else self.fibre_level_dbm(out))
        return found

    def output_powers_w(self) -> dict[int, float]:
        """Return the power that leaves the mesh on the chip, by port, where there is a monitor that can read it."""
        mesh = self._bench.mesh
        return {
            port: current_ma * 1e-3 / responsivity
            for port, current_ma in zip(mesh.monitor_ports, mesh.monitors_ma().tolist(), strict=True)
            if not math.isnan(current_ma) and (responsivity := self._responsivity_a_per_w(port)) > 0.0
        }

    def facet_loss_db(self, port: int) -> float:
        """Return the loss from the mesh into the fibre at a port, as calibrated, else typical."""
        loss_db = self._record.port(port).output_loss_db
        return self._bench.model.mesh_section.typical.access_loss_db if loss_db is None else loss_db

    def _responsivity_a_per_w(self, port: int) -> float:
        # mA per mW are A/W. 0 is a photodiode that was found dead, not one that is not known.
        calibrated = self._record.port(port).monitor_ma_per_mw
        return self._bench.mesh.responsivity_a_per_w if calibrated is None else calibrated

    def _monitor_look(self, ports: Collection[int]) -> Mapping[int, float]:
        del ports  # one scan has them all
        mesh = self._bench.mesh
        return dict(zip(mesh.monitor_ports, mesh.monitors_ma(_SCANS).tolist(), strict=True))


def _meter_look(bench: Bench, name: str) -> Callable[[Collection[int]], Mapping[int, PowerReading]]:
    def look(channels: Collection[int]) -> Mapping[int, PowerReading]:
        meter = bench.meters[name]
        readings = [meter.read(channel) for channel in channels] if len(channels) == 1 else meter.read_all()
        return {each.channel: each for each in readings}

    return look
