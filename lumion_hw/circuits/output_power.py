"""Power at the outputs of the mesh, read by meters on taps or by the mesh's own monitors.

Several threads may read; one reading serves all requests that arrived before it began.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.plan.planned import PlannedCircuit
from lumion_hw.clock import Clock, ClockEvent
from lumion_hw.errors import CircuitError, DeviceError
from lumion_hw.interfaces import PowerReading
from lumion_hw.interfaces.wiring import OutputPath
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.quantities import dbm_from_w, w_from_dbm

Reading = TypeVar("Reading")

_SCANS = 4
"""Monitor scans averaged for a reading."""


@dataclass
class _SharedReading(Generic[Reading]):
    """One reading of an instrument, which several threads wait for.

    Attributes:
        may_begin: Event that lets the first caller read for all.
        is_done: Event for the other callers.
    """

    may_begin: ClockEvent
    is_done: ClockEvent
    channels: list[int] = field(default_factory=list)
    by_channel: Mapping[int, Reading] = field(default_factory=dict)
    error: BaseException | None = None


class SharedInstrument(Generic[Reading]):
    """An instrument that several threads may read at once.

    Args:
        clock: The bench's clock.
        reading: Reads at least the given channels.
    """

    def __init__(self, clock: Clock, reading: Callable[[Collection[int]], Mapping[int, Reading]]) -> None:
        self._clock = clock
        self._read_channels = reading
        self._guard = threading.Lock()  # never held while time passes
        self._is_busy = False
        self._next = self._new_reading()

    def read(self, channel: int) -> Reading:
        """Return a reading of the instrument that began after this call. Raises the errors of the instrument."""
        with self._guard:
            reading, is_first, must_wait = self._next, not self._next.channels, self._is_busy
            reading.channels.append(channel)
            self._is_busy = True
        if not is_first:
            reading.is_done.wait()
        else:
            if must_wait:
                reading.may_begin.wait()
            self._clock.sleep(0.0)  # requests at this same instant are served too
            self._read_for_all(reading)
        if reading.error is not None:
            raise reading.error
        return reading.by_channel[channel]

    def _new_reading(self) -> _SharedReading[Reading]:
        return _SharedReading(self._clock.event(), self._clock.event())

    def _read_for_all(self, reading: _SharedReading[Reading]) -> None:
        # From here on, requests wait for the next reading: the light may have changed since this one began.
        with self._guard:
            self._next = self._new_reading()
        try:
            reading.by_channel = self._read_channels(sorted(set(reading.channels)))
        except BaseException as error:  # noqa: BLE001 - raised again for each requester
            reading.error = error
        with self._guard:
            # If others wait already, the instrument stays busy, and the first of them begins.
            self._is_busy = bool(self._next.channels)
            following = self._next
        reading.is_done.set()
        if following.channels:
            following.may_begin.set()


class OutputPowerReader:
    """Reads the optical power at the outputs of the mesh."""

    def __init__(self, bench: Bench, record: CalibrationRecord) -> None:
        self._bench = bench
        self._record = record
        self._meters = {
            name: SharedInstrument(bench.clock, _meter_reader(bench, name))
            for name in dict.fromkeys(output.meter for output in bench.wiring.outputs)
            if name is not None
        }
        self._monitors = SharedInstrument(bench.clock, self._read_monitors)

    def read_w(self, output: OutputPath) -> float:
        """Return the power of an output in watts, from its meter or monitor.

        Raises:
            CircuitError: The output has neither a meter nor a monitor.
            DeviceError: The reading is not a number.
        """
        if output.meter is not None and output.meter_channel is not None:
            return self._meters[output.meter].read(output.meter_channel).power_w
        if output.port not in self._bench.mesh.monitor_ports:
            raise CircuitError(f"port {output.port} has neither a meter nor a monitor, so its light cannot be verified")
        return self._monitor_w(output.port)

    def read_fastest_w(self, output: OutputPath) -> float:
        """Return a value proportional to the power of an output, from its monitor if it has one, else from its meter.

        Raises the errors of :meth:`read_w`.
        """
        return self._monitor_w(output.port) if self._has_photodiode(output) else self.read_w(output)

    def expected_fast_reading_w(self, output: OutputPath, fibre_dbm: float) -> float:
        """Return the expected result of :meth:`read_fastest_w` for a power in the output fibre at the facet."""
        if output.meter is None or self._has_photodiode(output):
            return w_from_dbm(fibre_dbm + self.facet_loss_db(output.port))
        return w_from_dbm(fibre_dbm - output.loss_db) * output.tap_fraction

    def budgeted_photocurrent_ma(self, circuit: PlannedCircuit) -> float | None:
        """Return the photocurrent in mA that a circuit's link budget predicts, or ``None`` without a photodiode."""
        if not self._has_photodiode(circuit.exit):
            return None
        budget, entry, port = circuit.budget, circuit.entry, circuit.exit.port
        fibre_dbm = budget.launch_dbm + entry.gain_db - entry.loss_db - budget.mesh_loss_db
        output_powers_w = w_from_dbm(fibre_dbm + self.facet_loss_db(port))
        return output_powers_w * 1e3 * self._responsivity_a_per_w(port)

    def _has_photodiode(self, output: OutputPath) -> bool:
        # A controller without photodiodes uses the meters instead, so its monitors are no faster.
        return self._bench.mesh.meters is None and output.port in self._bench.mesh.monitor_ports

    def _monitor_w(self, port: int) -> float:
        responsivity = self._responsivity_a_per_w(port)
        if not responsivity > 0.0:
            raise CircuitError(
                f"the photodiode at port {port} shows no light according to the calibration record "
                f"({responsivity:g} mA per mW), so its light cannot be verified",
                hint="Connect a meter to a tap at this port, or calibrate again.",
            )
        current_ma = self._monitors.read(port)
        if math.isnan(current_ma):
            raise DeviceError(f"the monitor at port {port} is saturated")
        return current_ma * 1e-3 / responsivity

    def fibre_level_dbm(self, output: OutputPath) -> float | None:
        """Return the power in an output fibre at the mesh facet in dBm; ``None`` in the dark or out of range."""
        try:
            power_w = self.read_w(output)
        except DeviceError:
            return None
        if not power_w > 0.0:
            return None
        level_dbm = dbm_from_w(power_w)
        # The meter sees the tap's fraction of the power behind the fibre; refer the reading to the facet.
        if output.meter is not None:
            return level_dbm - 10.0 * math.log10(output.tap_fraction) + output.loss_db
        return level_dbm - self.facet_loss_db(output.port)

    def fibre_levels_dbm(self, outputs: Sequence[OutputPath], *, monitors_only: bool = False) -> list[float | None]:
        """Return the power in several output fibres at the mesh facet in dBm; ``None`` in the dark.

        Args:
            outputs: The outputs.
            monitors_only: Return ``None`` for outputs without a monitor instead of reading their meters.
        """
        output_powers_w = self.output_powers_w() if outputs else {}
        levels_dbm: list[float | None] = []
        for output in outputs:
            if output.port in output_powers_w:
                power_w = output_powers_w[output.port]
                levels_dbm.append(dbm_from_w(power_w) - self.facet_loss_db(output.port) if power_w > 0.0 else None)
            else:
                levels_dbm.append(None if monitors_only else self.fibre_level_dbm(output))
        return levels_dbm

    def output_powers_w(self) -> dict[int, float]:
        """Return the power on the chip at each output port with a usable monitor, in watts."""
        mesh = self._bench.mesh
        return {
            port: current_ma * 1e-3 / responsivity
            for port, current_ma in zip(mesh.monitor_ports, mesh.monitors_ma().tolist(), strict=True)
            if not math.isnan(current_ma) and (responsivity := self._responsivity_a_per_w(port)) > 0.0
        }

    def facet_loss_db(self, port: int) -> float:
        """Return the loss in dB from the mesh into the fibre at a port; a typical value if not calibrated."""
        loss_db = self._record.port(port).output_loss_db
        return self._bench.model.mesh_section.typical.access_loss_db if loss_db is None else loss_db

    def _responsivity_a_per_w(self, port: int) -> float:
        # mA per mW equals A/W. 0 means that calibration found the photodiode dead; unknown is None.
        calibrated = self._record.port(port).monitor_ma_per_mw
        return self._bench.mesh.responsivity_a_per_w if calibrated is None else calibrated

    def _read_monitors(self, ports: Collection[int]) -> Mapping[int, float]:
        del ports  # one scan has them all
        mesh = self._bench.mesh
        return dict(zip(mesh.monitor_ports, mesh.monitors_ma(_SCANS).tolist(), strict=True))


def _meter_reader(bench: Bench, name: str) -> Callable[[Collection[int]], Mapping[int, PowerReading]]:
    def reading(channels: Collection[int]) -> Mapping[int, PowerReading]:
        meter = bench.meters[name]
        readings = [meter.read(channel) for channel in channels] if len(channels) == 1 else meter.read_all()
        return {reading.channel: reading for reading in readings}

    return reading
