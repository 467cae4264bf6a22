"""Calibration probe for a connected bench: modules and lasers supply the light, and the mesh monitors are read.

Only one source (transmitter of a module, or laser) is on at a time.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibration.measure.light_sources import driven_switches, dual_input_ports, light_source
from calibration.measure.plug_requests import Fibre, OnPlug, PlugRequest
from calibration.measure.separated_light import read_separately, separable
from calibration.measure.settling import heater_time_constant_s, step_currents_ma
from calibration.measure.temperature_lock import TemperatureLock
from calibration.model.arrays import Real
from calibration.model.device_under_test import MONITOR_SPREAD_DB, DeviceUnderTest
from calibration.model.space import space_from_record
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.fibre_devices import wiring_with_device_losses
from lumion_hw.bench.mesh_access import SETTLE_S, MeshAccess
from lumion_hw.circuits.output_power import SharedInstrument
from lumion_hw.errors import CalibrationError, CircuitError, ConfigError, DeviceError, LumionError
from lumion_hw.interfaces.wiring import InputPath, OutputPath
from lumion_hw.mesh.layout.cells import NO_CHANNEL
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner, Alignment
from lumion_hw.quantities import wavelength_m_from_frequency_hz

_ALIGN_SCANS = 4
_RESISTANCE_READINGS = 4
# Meters in the fibres include the loss of the facets.
_FACET_SPREAD_DB = 2.0


class BenchProbe:
    """Sets and reads the mesh of an open bench for a calibration.

    Args:
        aligner: Polarization search.
        on_plug: Called when a fibre has to be moved by hand; without it, such a move raises an error.

    Attributes:
        temperature: Lock of the chip temperature.
    """

    def __init__(self, bench: Bench, aligner: Aligner | None = None, on_plug: OnPlug | None = None) -> None:
        self._bench, self._on_plug = bench, on_plug
        self._plugged: dict[Fibre, int] = {}
        self._connected_request: PlugRequest | None = None
        self._note_request: Callable[[PlugRequest], object] = lambda request: None
        self.temperature = TemperatureLock(bench)
        self._aligner = aligner or Aligner(bench.clock)
        self._began_s = bench.clock.now()
        self._second_ports = dual_input_ports(bench.wiring.inputs)
        second = set(self._second_ports.values())
        # The settings of other devices in the fibres must not change during measurements.
        self._wiring = wiring_with_device_losses(bench, driven_switches(bench.wiring.inputs))
        self._inputs = {path.port: path for path in self._wiring.inputs if path.port not in second}
        self._sources = {port: light_source(bench, path) for port, path in self._inputs.items()}
        self._active_port: int | None = None
        self._only_sources: tuple[int, ...] | None = None
        self._columns: list[int] | None = None
        self._launched_dbm: dict[int, float] = {}
        self._meters_nm: float | None = None
        self._dead_ports: dict[int, str] = {}
        self._timed_with: set[int] = set()
        if not self._inputs:
            raise CalibrationError("no light is wired to the mesh", hint="See 'wiring.inputs' in the bench file.")
        if not bench.mesh.monitor_ports:
            raise CalibrationError(
                f"the light cannot be measured: {bench.model.mesh_section.controller} has no monitors, and no output "
                "has a tap",
                hint="Connect power meters to taps, see 'wiring.outputs' in the bench file.",
            )

    @property
    def mesh(self) -> MeshTopology:
        """Layout of the mesh under calibration."""
        return self._bench.mesh.topology

    @property
    def sources(self) -> tuple[int, ...]:
        """Ports that receive light from a module or laser; for a source with two ports, the first one."""
        used = self._inputs if self._only_sources is None else self._only_sources
        return tuple(port for port in self._inputs if port in used and port not in self._dead_ports)

    @property
    def second_ports(self) -> Mapping[int, int]:
        """Second port of each source with two ports, by its first port."""
        return self._second_ports

    @property
    def monitors(self) -> tuple[int, ...]:
        """Port of every monitor."""
        ports = self._bench.mesh.monitor_ports
        return ports if self._columns is None else tuple(ports[column] for column in self._columns)

    def use_only(self, sources: Sequence[int], monitors: Sequence[int]) -> None:
        """Use only some of the sources and monitors from now on; the others are off or ignored."""
        self._only_sources = tuple(sources)
        self._columns = [column for column, port in enumerate(self._bench.mesh.monitor_ports) if port in monitors]

    @property
    def heater_max_ma(self) -> float:
        """Largest heater current."""
        return self._bench.mesh.heater_max_ma

    @property
    def current_step_ma(self) -> float:
        """Smallest step of a heater current."""
        return self._bench.mesh.controller.info.current_step_ma

    @property
    def monitor_step_ma(self) -> float:
        """Smallest photocurrent step."""
        return self._bench.mesh.monitor_step_ma

    @property
    def sources_by_hand(self) -> tuple[int, ...]:
        """Ports of the laser that is moved by hand."""
        return tuple(path.port for path in self._inputs.values() if path.by_hand)

    @property
    def monitors_by_hand(self) -> tuple[int, ...]:
        """Ports of the power meter that is moved by hand; empty if no such meter is a monitor."""
        by_hand = {path.port for path in self._wiring.outputs if path.by_hand}
        return tuple(port for port in self.monitors if port in by_hand) if self._bench.mesh.meters else ()

    def plug(self, fibre: Fibre, port: int, reason: str = "") -> None:
        """Have a fibre that is moved by hand connected to a port, with heaters and sources off.

        Raises:
            CalibrationError: No operator can be asked (``on_plug`` is missing).
        """
        paths: list[InputPath | OutputPath] = [*self._inputs.values(), *self._wiring.outputs]
        path = next(path for path in paths if path.by_hand and path.port == port)
        device = path.source if isinstance(path, InputPath) else str(path.meter)
        request = PlugRequest(fibre, device, port, reason)
        self._plugged.pop(fibre, None)
        self.switch_everything_off()
        connected, self._connected_request = self._connected_request, None
        if self._on_plug is None and connected == replace(request, reason=""):
            self.assume_plugged(fibre, port)
            return
        self._note_request(request)
        if self._on_plug is None:
            description = request.description()
            raise CalibrationError(
                f"{reason} {description[0].upper()}{description[1:]}, then continue".lstrip(),
                hint="Continue with --resume, or run on a terminal, where the program waits for each move.",
            )
        self._on_plug(request)
        self.assume_plugged(fibre, port)
        self._bench.events.add("plugged", fibre=fibre, device=device, port=port, reason=reason)

    def keep_plug_requests(self, keep: Callable[[PlugRequest], object], before: PlugRequest | None = None) -> None:
        """Call ``keep`` with every request to the operator.

        Args:
            keep: Stores a request.
            before: Request at which an interrupted run stopped; without ``on_plug`` it counts as done.
        """
        self._note_request, self._connected_request = keep, before

    def assume_plugged(self, fibre: Fibre, port: int) -> None:
        """Assume that a fibre that is moved by hand is connected to a port."""
        self._plugged[fibre] = port
        if fibre == "meter" and self._bench.mesh.meters is not None:
            self._bench.mesh.meters.moved_to = port

    def check_input_ports_match_record(self, record: CalibrationRecord) -> None:
        """Raise ``ConfigError`` if a source feeds other ports than during the calibration.

        Raises:
            ConfigError: A fibre was connected or disconnected since the calibration.
        """
        space = space_from_record(record)
        recorded, connected = _joint_ports(space.sources, space.seconds), _joint_ports(self._inputs, self.second_ports)
        for group in sorted(map(sorted, connected - recorded)):
            if before := [sorted(ports) for ports in recorded if ports & set(group)]:
                raise ConfigError(
                    f"one source of this bench feeds {_format_ports([group])}, but the calibration record was made "
                    f"with light at {_format_ports(before)}",
                    hint="Restore the wiring used for the calibration, or calibrate again. The record still describes "
                    "the mesh itself.",
                )

    def device_under_test(self) -> DeviceUnderTest:
        """Return the description of the device under test."""
        mesh, info, typical = self._bench.mesh, self._bench.mesh.controller.info, self._bench.model.mesh_section.typical
        live_sources = {port: self._sources[port] for port in self.sources}
        devices = {self._inputs[port].source for port in live_sources}
        tunable = {port: hz for port in live_sources if (hz := self.tunable_hz(port)) is not None}
        # Tunable sources are tuned to the median of the fixed ones, which one wrongly labelled source does not move.
        fixed = [source.frequency_hz() for port, source in live_sources.items() if port not in tunable]
        stated = fixed or [source.frequency_hz() for source in live_sources.values()]
        nominal_nm = round(wavelength_m_from_frequency_hz(float(np.median(stated))) * 1e9, 9) if stated else 1550.0
        return DeviceUnderTest(
            serial=info.serial,
            model=info.model,
            firmware=info.firmware,
            heater_channels=mesh.heater_channels,
            wavelength_nm=nominal_nm,
            heater_ohm=mesh.heater_ohm,
            p_pi_mw=(typical.p_pi_min_mw, typical.p_pi_max_mw),
            monitor_ma_per_mw=mesh.responsivity_a_per_w,
            puc_loss_db=typical.puc_loss_db,
            monitor_spread_db=_FACET_SPREAD_DB if mesh.meters else MONITOR_SPREAD_DB,
            source_spread_hz=max(source.spread_hz for source in live_sources.values()) if len(devices) > 1 else 0.0,
            tunable_hz=tunable,
            seconds={port: second for port, second in self.second_ports.items() if port in live_sources},
            sources_by_hand=self.sources_by_hand,
            monitors_by_hand=self.monitors_by_hand,
            settle_s=None if mesh.settle_s == SETTLE_S else mesh.settle_s,
            heater_tau_s=mesh.heater_tau_s,
            emulated_chip=mesh.emulated_chip,
        )

    def tunable_hz(self, port: int) -> tuple[float, float] | None:
        """Return the lowest and highest frequency of the source at a port; ``None`` if it is not tunable."""
        return self._sources[port].tunable_hz()

    def tune(self, port: int, frequency_hz: float) -> float:
        """Tune the source at a port as :meth:`calibration.measure.probe.Probe.tune`; a source that is on stays on."""
        # After a failure here the state of the light is unknown; the next call then switches all sources.
        active_port, self._active_port = self._active_port, None
        self._launched_dbm.pop(port, None)
        reached_hz = self._sources[port].tune(frequency_hz)
        self._set_meter_wavelengths(round(wavelength_m_from_frequency_hz(reached_hz) * 1e9, 3))
        if active_port == port:
            self._sources[port].on()
        self._active_port = active_port
        return reached_hz

    def reported_frequencies_hz(self) -> dict[int, float]:
        """Return the reported frequency of every tunable source, by port."""
        return {port: source.frequency_hz() for port, source in self._sources.items() if source.tunable_hz()}

    def _set_meter_wavelengths(self, wavelength_nm: float) -> None:
        if wavelength_nm != self._meters_nm:
            for meter in self._bench.meters.values():
                for channel in meter.channels:
                    meter.set_wavelength_nm(channel, wavelength_nm)
            self._meters_nm = wavelength_nm

    def align_all(
        self, dead: Mapping[int, str] | None = None, on_step: Callable[[int, int], None] = lambda step, total: None
    ) -> dict[int, str]:
        """Align the polarization of every source; return the ports that stay dark, with reasons.

        Waits for the chip temperature first, if it is controlled. Then measures the thermal time constant of the
        heaters, unless it is known from a record.

        Args:
            dead: Ports to skip because they are dark, with reasons.
            on_step: Called after every source.

        Raises:
            ConfigError: The wait in the bench file is too short for these heaters.
            DeviceError: The temperature controller is off or reports a fault.
            DeviceTimeoutError: The temperature is not stable in time.
        """
        self.temperature.wait()
        self._dead_ports |= dead or {}
        # With cold heaters nothing drifts thermally during the polarization search.
        self._bench.mesh.program(np.zeros(2 * self.mesh.n_pucs))
        if self.sources_by_hand or self.monitors_by_hand:
            # The first fibre is plugged in later, when the journal of the run exists.
            return dict(self._dead_ports)
        movable = [port for port in self.sources if self._inputs[port].polarization]
        n_finished = len(self._inputs) - len(movable)
        together = self._align_together(movable)
        for port in movable:
            if port not in together:
                try:
                    self.light_only_port(port)
                    together[port] = self._alignment(port, self._total_ma)
                # One dark port does not stop the calibration: its PUCs are measured from other ports.
                except (CircuitError, DeviceError) as error:
                    self._dead_ports[port] = str(error)
                    self._bench.events.add("source dark", port=port, reason=str(error))
            n_finished += 1
            on_step(n_finished, len(self._inputs))
        for port, alignment in together.items():
            controller, swing_db = self._inputs[port].polarization, round(alignment.swing_db, 2)
            self._bench.events.add("aligned", controller=controller, reads=alignment.reads, swing_db=swing_db)
        if self._active_port not in self.sources and self.sources:
            self.light_only_port(self.sources[-1])
        self.measure_heater_time_constant()
        return dict(self._dead_ports)

    def _align_together(self, ports: Sequence[int]) -> dict[int, Alignment]:
        """Align several sources together; return the results by port.

        Sources without a result must be aligned alone.
        """
        self.light_only_port(None)
        dark_ma, patterns_ma = self._bench.mesh.monitors_ma(_ALIGN_SCANS), dict[int, Real]()
        for port in ports:
            # A source that fails here is aligned alone later and reports its error there.
            with contextlib.suppress(CircuitError, DeviceError):
                self.light_only_port(port)
                patterns_ma[port] = self._bench.mesh.monitors_ma(_ALIGN_SCANS) - dark_ma
        shared_by = Counter(path.source for path in self._inputs.values())
        chosen = separable({port: ma for port, ma in patterns_ma.items() if shared_by[self._inputs[port].source] == 1})
        if not chosen:
            return {}
        bench, chosen_ma = self._bench, {port: patterns_ma[port] for port in chosen}

        def read_all(_: Collection[int]) -> Mapping[int, float]:
            # One scan measures all sources.
            return read_separately(chosen_ma, dark_ma, lambda: bench.mesh.monitors_ma(_ALIGN_SCANS))

        shared = SharedInstrument(bench.clock, read_all)

        def search(port: int) -> Alignment | None:
            try:
                return self._alignment(port, lambda: shared.read(port))
            except (CircuitError, DeviceError):
                return None

        if self._active_port not in chosen:
            self.light_only_port(None)
        self._active_port = None  # several sources are on: the next light_only_port switches the others off
        try:
            bench.run_parallel([(self._inputs[port].source, self._sources[port].on) for port in chosen])
            searches = [(self._inputs[port].polarization or "", functools.partial(search, port)) for port in chosen]
            readings = bench.run_parallel(searches)
        except DeviceError:
            return {}
        return {port: alignment for port, alignment in zip(chosen, readings, strict=True) if alignment is not None}

    def _alignment(self, port: int, read: Callable[[], float]) -> Alignment:
        name = self._inputs[port].polarization or ""
        return self._aligner.maximise(name, self._bench.polarizer(name), read)

    def measure_heater_time_constant(self) -> None:
        """Measure the thermal time constant of the heaters unless it is known; heaters are off afterwards.

        Raises:
            ConfigError: The wait in the bench file is too short for these heaters.
        """
        mesh, typical, active_port = self._bench.mesh, self._bench.model.mesh_section.typical, self._active_port
        if mesh.heater_tau_s is not None or active_port is None or active_port in {-1, *self._timed_with}:
            return
        self._timed_with.add(active_port)
        p_pi_mw = math.sqrt(typical.p_pi_min_mw * typical.p_pi_max_mw)
        steps_ma = step_currents_ma(2 * self.mesh.n_pucs, p_pi_mw, mesh.heater_ohm, mesh.heater_max_ma)
        steps_ma = np.where(np.array(mesh.heater_channels) == NO_CHANNEL, 0.0, steps_ma)
        tau_s = heater_time_constant_s(_TimedMeshReader(mesh), steps_ma)
        self._bench.events.add("heaters timed", heater_tau_s=tau_s, by_light_at=active_port)
        if tau_s is not None:
            mesh.set_heater_time_constant(tau_s, "their light")

    def _total_ma(self) -> float:
        readings = self._bench.mesh.monitors_ma(_ALIGN_SCANS)
        full = self._bench.mesh.monitor_full_scale_ma
        return float(np.where(np.isnan(readings), full, readings).sum())

    def light_only_port(self, port: int | None) -> None:
        """Switch on the source at one port and all others off. A laser may have to be moved there by hand."""
        if port in self.sources_by_hand and self._plugged.get("laser") != port:
            self.plug("laser", port)
        active_port, self._active_port = self._active_port, None
        device = None if port is None else self._inputs[port].source
        for other, source in self._sources.items():
            # A switch takes the light of a shared source from the other port.
            if self._inputs[other].source != device and (active_port is None or other == active_port):
                source.off()
        if port is not None:
            self._sources[port].on()
            if port not in self._launched_dbm:
                self._launched_dbm[port] = self._sources[port].launched_dbm()
        self._active_port = port if port is not None else -1

    def launched_dbm(self, port: int) -> float:
        """Return the power in the fibre at the facet in dBm: reported power plus gain minus fixed losses."""
        path = self._inputs[port]
        return self._launched_dbm[port] + path.gain_db - path.loss_db

    def measure(self, currents_ma: Real) -> Real:
        """Set the heaters, wait until they settle, and read all monitors; repeat if the temperature was not stable."""
        self.measure_heater_time_constant()

        def read() -> Real:
            self._bench.mesh.program(currents_ma)
            return self._used(self._bench.mesh.monitors_ma())

        return self.temperature.read_while_locked(read)

    def _used(self, readings_ma: Real) -> Real:
        return readings_ma if self._columns is None else readings_ma[..., self._columns]

    def measure_batch(self, currents_ma: Real) -> Real:
        """Measure settings one after the other, as one sweep if the controller can."""
        self.measure_heater_time_constant()
        return self.temperature.read_while_locked(lambda: self._used(self._bench.mesh.sweep(currents_ma)))

    def fibre_dbm(self) -> dict[int, float]:
        """Return the power in dBm that leaves each port with an external meter into its fibre."""
        meters = self._bench.meters.items()
        readings = {(name, reading.channel): reading for name, meter in meters for reading in meter.read_all()}
        powers: dict[int, float] = {}
        for output in self._wiring.outputs:
            reading = (
                readings.get((output.meter, output.meter_channel)) if output.meter and output.meter_channel else None
            )
            if reading is None or (output.by_hand and output.port != self._plugged.get("meter")):
                continue
            try:
                level_dbm = reading.power_dbm
            except DeviceError:
                continue
            # The meter measures the tapped share; the returned power is that before the tap.
            powers[output.port] = level_dbm - 10.0 * math.log10(output.tap_fraction) + output.loss_db
        return powers

    @property
    def measures_resistances(self) -> bool:
        """Whether the controller measures the resistance of the heaters."""
        return self._bench.mesh.measures_resistances

    def heater_resistances_ohm(self) -> Real:
        """Return the resistance of every heater at the present setting in Ω; NaN if unknown."""
        readings = [self._bench.mesh.heater_resistances_ohm() for _ in range(_RESISTANCE_READINGS)]
        return np.asarray(np.mean(readings, axis=0))

    def elapsed_s(self) -> float:
        """Return the time since this probe was created, by the clock of the bench."""
        return self._bench.clock.now() - self._began_s

    def rest(self, duration_s: float) -> None:
        """Wait without a change of the setting."""
        self._bench.clock.sleep(duration_s)

    def switch_everything_off(self) -> None:
        """Switch heaters and sources off. A failure is logged, and the other devices are still switched off."""
        # Heaters first, because they can cause damage.
        actions: list[Callable[[], object]] = [lambda: self._bench.mesh.program(np.zeros(2 * self.mesh.n_pucs))]
        actions += [source.off for source in self._sources.values()]
        for action in actions:
            try:
                action()
            except LumionError as error:
                with contextlib.suppress(LumionError):
                    self._bench.events.add("could not be switched off", reason=str(error))
        self._active_port = None


@dataclass(frozen=True)
class _TimedMeshReader:
    """Reads the monitors at a given time after a change of heater currents."""

    mesh: MeshAccess

    def read(self, currents_ma: Real, wait_s: float) -> Real:
        """Set heater currents in mA, wait, and return the monitor currents in mA."""
        return np.squeeze(self.mesh.sweep(currents_ma[None], wait_s), axis=0)

    def repeat_read(self, wait_s: float) -> Real:
        """Wait at the present heater currents, and return the monitor currents in mA."""
        self.mesh.clock.sleep(wait_s)
        return self.mesh.monitors_ma()


def _joint_ports(sources: Iterable[int], seconds: Mapping[int, int]) -> set[frozenset[int]]:
    return {frozenset({port, seconds.get(port, port)}) for port in sources}


def _format_ports(port_groups: Sequence[Sequence[int]]) -> str:
    return ", ".join(
        f"ports {' and '.join(map(str, ports))} together" if len(ports) > 1 else f"port {ports[0]} alone"
        for ports in port_groups
    )
