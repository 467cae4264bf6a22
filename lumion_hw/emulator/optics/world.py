"""Optical model of an emulated bench, from the light sources through fibres and mesh to the detectors.

The light of different modules adds in power. The mesh carries TE light.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.chip.cell import ChipCells
from lumion_hw.emulator.chip.chip import ChipSlopes
from lumion_hw.emulator.chip.photodiodes import PhotodiodeArray
from lumion_hw.emulator.optics.bench_time import BenchTime
from lumion_hw.emulator.optics.coherent_paths import NO_PATH, CoherentLaunch, CoherentReception, PathPair, path_pair
from lumion_hw.emulator.optics.disturbances import Disturbances
from lumion_hw.emulator.optics.heated_chip import HeatedChip
from lumion_hw.emulator.optics.inline_devices import AMPLIFIED_BAND_HZ, OSNR_BAND_HZ, Beam, InlineDevices
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.light_sources import LightSources
from lumion_hw.emulator.optics.loops import Loops
from lumion_hw.emulator.optics.moved_fibres import MovedFibres
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.emulator.optics.polarization import Jones, retarder, stokes_of
from lumion_hw.emulator.optics.slow_drift import SlowDrift
from lumion_hw.emulator.optics.truth import ChainTruth, MeshTruth
from lumion_hw.interfaces.wiring import FibrePath, InlineDevice, InputPath, OutputPath, Wiring
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.quantities import (
    OSNR_OF_0_DBM_DB,
    combined_osnr_db,
    dbm_from_w,
    frequency_hz_from_wavelength_m,
    w_from_dbm,
    wavelength_m_from_frequency_hz,
)

_LARGEST_DRIFT_RAD2 = 0.25
_MAX_DRIFT_STEPS = 16  # enough to randomize the polarization completely, however long the pause
COHERENT_WIDTH_HZ = 60e9
"""Spectral width in Hz of a coherent module: about 60 GBd (400ZR: 59.84 GBd, OIF-400ZR-01.0)."""
_TRIBUTARY = {"x": np.array([1.0 + 0j, 0.0]), "y": np.array([0.0, 1.0 + 0j])}


@dataclass(frozen=True)
class SpectralLine:
    """Light of one source at a spectrum analyser.

    Attributes:
        width_hz: Width of the flat spectrum; 0 for a laser.
        osnr_db: Optical signal-to-noise ratio at the transmitter; infinite for a laser.
    """

    power_w: float
    frequency_hz: float
    width_hz: float
    osnr_db: float


class OpticalWorld:
    """Optical model of the emulated bench.

    Args:
        chains: True parameters of each input, in wiring order.
        nominal_nm: Wavelength in nm for which the mesh parameters are specified.
        slow_drift: Slow change of the mesh parameters; none by default.
    """

    def __init__(
        self,
        mesh: MeshTopology,
        wiring: Wiring,
        mesh_truth: MeshTruth,
        chains: list[ChainTruth],
        physics: PhysicsParameters,
        nominal_nm: float,
        clock: Clock,
        rng: np.random.Generator,
        slow_drift: SlowDrift | None = None,
        offsets_rng: np.random.Generator | None = None,
        pluggings_rng: np.random.Generator | None = None,
    ) -> None:
        self.mesh = mesh
        self.wiring = wiring
        self.truth = mesh_truth
        self.chains = chains
        self._physics = physics
        self._clock = clock
        self._rng = rng
        self._slow_drift = slow_drift
        self._nominal_nm = nominal_nm
        reference_hz = frequency_hz_from_wavelength_m(nominal_nm * 1e-9)
        self.disturbances = Disturbances()
        loops = Loops(wiring.loops)
        self.chip = HeatedChip(mesh, mesh_truth, physics, nominal_nm, loops, self.disturbances, clock.now())
        self._photodiodes = PhotodiodeArray(physics.effects, offsets_rng or np.random.default_rng(0), clock.now())
        self._tapped_fibres = _tapped_fibres(wiring)
        self._moved = MovedFibres(wiring, physics.plugging_sigma_db, pluggings_rng or np.random.default_rng(0))
        self._sources = LightSources(wiring, chains, self._moved, reference_hz)
        self.inline_devices = InlineDevices()
        self._input_by_controller = {path.polarization: i for i, path in enumerate(wiring.inputs) if path.polarization}
        self._controller_jones: list[Jones] = [np.eye(2, dtype=np.complex128) for _ in chains]
        self._fibres_drifted_s = clock.now()
        self.time = BenchTime(clock.now)
        self.before_reading: list[Callable[[], None]] = []
        self.scanning: list[Callable[[], None]] = []  # also before a reading, for devices that read light themselves
        self.swept_lasers: dict[str, Callable[[float], Light]] = {}  # light of sweeping lasers at an earlier instant
        self.before_changing: list[Callable[[], None]] = []
        self._calling_watchers = False
        self._updating = False
        self._updated_exchange: int | None = None  # the last exchange in which all devices were brought up to date
        self._reading_s: float | None = None
        # Power at all ports per launched power, by input and frequency, and the state of the bench for which it holds.
        self._output_per_input: dict[tuple[int, float], NDArray[np.float64]] = {}
        self._path_state: tuple[object, ...] = ()

    # Calls from devices that change the light -----------------------------------------------------------------------

    def set_transmitter(self, source: str, power_w: float) -> None:
        """Set the power that a module or laser launches."""
        self.about_to_change()
        self._sources.set_power(source, power_w)

    def plug(self, device: str, port: int) -> None:
        """Plug the hand-moved fibre of a laser or meter into a port, with a new coupling.

        Raises:
            ConfigError: The bench file has no fibre of this device that is moved by hand to this port.
        """
        self.about_to_change()
        self._moved.plug(device, port)
        self._sources.follow_plug(device)

    def set_source(self, laser: str, power_w: float, wavelength_nm: float) -> None:
        """Set the power and wavelength that a tunable laser launches."""
        self.about_to_change()
        self._sources.set_lines(laser, [Light(power_w, wavelength_nm)])

    def set_lines(self, source: str, lines: Sequence[Light]) -> None:
        """Set the light of a module that launches several wavelengths into one fibre; at least one, dark or not."""
        self.about_to_change()
        self._sources.set_lines(source, lines)

    def set_coherent(self, transponder: str, launch: CoherentLaunch) -> None:
        """Set the dual-polarization light that a module launches."""
        self.about_to_change()
        self._sources.set_coherent(transponder, launch)

    def set_polarization(self, controller: str, jones: Jones) -> None:
        """Set the Jones matrix of a polarization controller."""
        index = self._input_by_controller.get(controller)
        if index is not None:
            self._controller_jones[index] = jones

    def drive_heaters(self, currents_ma: NDArray[np.float64], at_s: float) -> None:
        """Apply the heater currents from ``at_s`` on, at index 2·PUC + arm."""
        self.chip.drive(currents_ma, at_s)

    def disturb(self) -> None:
        """Make the heat respond to a change of the chip from now on."""
        self.chip.disturb(self._now())

    def turn_fibre(self, transponder: str, angle_rad: float = np.pi) -> None:
        """Rotate an input's polarization by an angle on the Poincaré sphere, as a moved fibre does."""
        self.about_to_change()
        index = self._sources.inputs_of(transponder)[0]
        chain = self.chains[index]
        state = stokes_of(self._field_at_chip(index))
        state /= np.linalg.norm(state)
        axis = self._rng.standard_normal(3)
        axis -= (axis @ state) * state  # half a turn about any axis at right angles gives the opposite pole
        chain.fibre_out = retarder(angle_rad * axis / np.linalg.norm(axis)) @ chain.fibre_out

    def about_to_change(self) -> None:
        """Record the light up to now. Must be called before a device changes the light."""
        if not self._calling_watchers:
            self._calling_watchers = True
            try:
                for action in self.before_changing:
                    action()
            finally:
                self._calling_watchers = False

    def light_state(self) -> object | None:
        """Return a value that differs whenever the light in the fibres does; ``None`` if it may change at any time."""
        self._update_world()
        inline = [path.through for path in self.wiring.inputs] + [path.through for path in self.wiring.outputs]
        if self.disturbances.power_db or any(inline):
            return None
        return self._path_state, self._sources.state()

    # Readings of devices ---------------------------------------------------------------------------------------------

    def mesh_output_w(self, includes: Callable[[float], bool] | None = None) -> NDArray[np.float64]:
        """Return the present power that leaves the mesh at every port in W, shape ``(n_ports,)``.

        ``includes`` returns whether light of a frequency in Hz counts; by default all light and noise does.
        """
        self._update_world()
        total = np.zeros(self.mesh.n_ports)
        for index, chain in enumerate(self.chains):
            if includes is None or includes(chain.frequency_hz):
                total += self._output_w(index)
        for source, number, line in self._sources.further_lines:
            if includes is None or includes(line.frequency_hz):
                total += self._output_of_line_w(source, number)
        if includes is None and self._has_amplified_inputs:
            total += AMPLIFIED_BAND_HZ * self._noise_output_w_per_hz()
        return total

    @property
    def _has_amplified_inputs(self) -> bool:
        return any(path.through for path in self.wiring.inputs)

    def _beam_at_input(self, index: int) -> Beam:
        """Return the light of each line of an input's source behind the devices in the input fibre."""
        beam = Beam(self._sources.at_input_w(index))
        return self.inline_devices.transmit(beam, self.wiring.inputs[index].through)

    def _noise_output_w_per_hz(self) -> NDArray[np.float64]:
        noise = np.zeros(self.mesh.n_ports)
        for index, path in enumerate(self.wiring.inputs):
            density = self._beam_at_input(index).noise_w_per_hz if path.through else 0.0
            if density > 0.0:
                # Noise is unpolarized: half of it is TE.
                fields = self._output_fields(index, self.chains[index].frequency_hz)
                noise += 0.5 * density * self._input_gain(index) * np.abs(fields) ** 2
        return noise

    def _output_of_line_w(self, source: str, number: int) -> NDArray[np.float64]:
        """Return the power of one line of a source at all ports."""
        total = np.zeros(self.mesh.n_ports)
        for index in self._sources.inputs_of(source):
            total += self._output_w(index, number)
        return total

    def _output_w(self, index: int, line: int = 0) -> NDArray[np.float64]:
        launched_w = float(self._beam_at_input(index).powers_w[line])
        if launched_w <= 0.0:
            return np.zeros(self.mesh.n_ports)
        frequency_hz = self._sources.frequency_hz(index, line)
        if (index, frequency_hz) not in self._output_per_input:
            te, tm = self._entering_fraction(index)
            output: NDArray[np.float64] = te * np.abs(self._output_fields(index, frequency_hz)) ** 2
            if tm > 0.0:
                output += tm * np.abs(self._output_fields(index, frequency_hz, tm=True)) ** 2
            self._output_per_input[index, frequency_hz] = output
        drift = self.disturbances.power(self.wiring.inputs[index].port, self._now())
        return launched_w * drift * self._output_per_input[index, frequency_hz]

    def monitor_ma(
        self, ports: NDArray[np.int64], responsivity_a_per_w: float, n_avg: int, at_s: float | None = None
    ) -> NDArray[np.float64]:
        """Return the photocurrents of the on-chip monitors in mA, with noise.

        Args:
            ports: Ports of the monitors.
            responsivity_a_per_w: Responsivity of the photodiodes.
            n_avg: Number of scans averaged.
            at_s: Time of the reading, by default now.
        """
        self._reading_s, outer_s = at_s, self._reading_s
        try:
            power_w = self.mesh_output_w()[ports] * self.truth.monitor_scale[ports]
        finally:
            self._reading_s = outer_s
        floor_w = w_from_dbm(self._physics.monitor_noise_floor_dbm)
        # Relative noise and amplifier noise are independent; averaging reduces both.
        sigma_w = np.hypot(self._physics.monitor_noise_relative * power_w, floor_w) / np.sqrt(n_avg)
        noisy_w = power_w + sigma_w * self._rng.standard_normal(len(ports))
        current_ma = self._photodiodes.read_ma(noisy_w * responsivity_a_per_w * 1e3, self._now())
        # Photocurrents are positive, and the converter clips at 0.
        read_ma: NDArray[np.float64] = np.maximum(current_ma, 0.0)
        return read_ma

    def leaving_lines_w(self) -> list[tuple[str, float, NDArray[np.float64]]]:
        """Return the source and frequency in Hz of each line of light, and its power in W in the fibre at every port.

        The noise of amplifiers is left out.
        """
        self._update_world()
        gain = 10.0 ** (-self.truth.access_loss_db / 10.0)
        lines = [
            (path.source, self.chains[i].frequency_hz, self._output_w(i)) for i, path in enumerate(self.wiring.inputs)
        ]
        lines += [
            (source, line.frequency_hz, self._output_of_line_w(source, number))
            for source, number, line in self._sources.further_lines
        ]
        return [(source, hertz, gain * powers_w) for source, hertz, powers_w in lines if powers_w.any()]

    def received_w(self, transponder: str) -> float:
        """Return the total power at a module's receiver in W."""
        return sum(beam.total_w for beam in self._received(transponder))

    def received_by_source_w(self, transponder: str) -> dict[str, float]:
        """Return the power at a module's receiver in W from each light source that reaches it."""
        received: dict[str, float] = {}
        for (source, _), power_w in self.received_lines_w(transponder).items():
            received[source] = received.get(source, 0.0) + power_w
        return received

    def received_lines_w(self, transponder: str) -> dict[tuple[str, float], float]:
        """Return the power at a module's receiver in W, by light source and frequency in Hz."""
        received: dict[tuple[str, float], float] = {}
        for beam in self._received(transponder):
            lines = zip(self._sources.names, self._sources.frequencies_hz, strict=True)
            for line, power_w in zip(lines, beam.powers_w.tolist(), strict=True):
                if power_w > 0.0:
                    received[line] = received.get(line, 0.0) + power_w
        return received

    def _received(self, transponder: str) -> list[Beam]:
        self._update_world()
        paths: list[OutputPath | FibrePath] = [*self.wiring.outputs_of(transponder)]
        paths += [fibre for fibre in self.wiring.fibres if fibre.transponder == transponder]
        return [self._beam_before_splitter(path).times(path.receiver_fraction) for path in paths]

    def _beam_before_splitter(self, path: OutputPath | FibrePath) -> Beam:
        if isinstance(path, FibrePath):
            beam = Beam(self._sources.bypassing_w(path.source))
            return self.inline_devices.transmit(beam, path.through).times(10.0 ** (-path.loss_db / 10.0))
        gain = self._output_gain(path)
        powers_w = np.zeros(len(self._sources.names))
        powers_w[: len(self.chains)] = [gain * self._output_w(i)[path.port] for i in range(len(self.chains))]
        if further := self._sources.further_lines:
            powers_w[-len(further) :] = [
                gain * self._output_of_line_w(source, number)[path.port] for source, number, _ in further
            ]
        noise = gain * float(self._noise_output_w_per_hz()[path.port]) if self._has_amplified_inputs else 0.0
        return self.inline_devices.transmit(Beam(powers_w, noise), path.through)

    def part_w(self, device: str, channel: int = 1) -> tuple[float, float]:
        """Return the power in W before and after a device in the fibres; 0 if the device is in no fibre.

        Args:
            device: Device name.
            channel: Channel of an attenuator, input port of a switch, 1 for an amplifier.
        """
        self._update_world()
        before_w = after_w = 0.0

        def is_crossed(through: Sequence[InlineDevice]) -> bool:
            return any((part.device, part.channel) == (device, channel) for part in through)

        beams: list[Callable[[], Beam]] = [
            partial(self._beam_at_input, i) for i, path in enumerate(self.wiring.inputs) if is_crossed(path.through)
        ]
        fibres: list[OutputPath | FibrePath] = [*self.wiring.outputs, *self.wiring.fibres]
        beams += [partial(self._beam_before_splitter, path) for path in fibres if is_crossed(path.through)]
        for compute_beam in beams:
            with self.inline_devices.record_powers() as powers_w:
                compute_beam()
            fibre_before_w, fibre_after_w = powers_w[device, channel]
            before_w, after_w = before_w + fibre_before_w, after_w + fibre_after_w
        return before_w, after_w

    def received_coherent(self, transponder: str, band_hz: float) -> CoherentReception | None:
        """Return the strongest dual-polarization signal at a module's receiver; ``None`` if there is none.

        Args:
            transponder: The receiving module.
            band_hz: Distance in Hz from the signal's carrier up to which other light counts as noise.
        """
        beams = self._received(transponder)
        total_w = sum(beam.total_w for beam in beams)
        candidates = [
            (sender, launch, pair)
            for sender, launch in self._sources.coherent.items()
            if launch.power_w > 0.0
            for pair in (self._mesh_pair(sender, transponder, launch), self._bypass_pair(sender, transponder))
            if pair.rank > 0
        ]
        if not candidates:
            return None
        sender, launch, pair = max(candidates, key=lambda item: item[1].power_w * item[2].transmission)
        signal_w = launch.power_w * pair.transmission
        # Other light counts as noise if it beats within the receiver's band; the receiver filters out the rest.
        in_band = np.abs(np.array(self._sources.frequencies_hz) - launch.frequency_hz) <= band_hz
        other_w = sum(float(beam.powers_w[in_band].sum()) for beam in beams) - signal_w
        # A relative difference below 1e-12 is rounding error.
        crosstalk_db = 10.0 * math.log10(signal_w / other_w) if other_w > 1e-12 * signal_w else math.inf
        noise_w = OSNR_BAND_HZ * sum(beam.noise_w_per_hz for beam in beams)
        amplified_db = 10.0 * math.log10(signal_w / noise_w) if noise_w > 0.0 else math.inf
        booster_db = self._booster_osnr_db(sender, launch.power_w)
        osnr_db = combined_osnr_db(launch.osnr_db, booster_db, crosstalk_db, amplified_db)
        return CoherentReception(sender, launch, pair, signal_w, total_w, osnr_db)

    def _bypass_pair(self, sender: str, receiver: str) -> PathPair:
        for fibre in self.wiring.fibres:
            if (fibre.source, fibre.transponder) == (sender, receiver):
                transmission = self._beam_before_splitter(fibre).gain * fibre.receiver_fraction
                return PathPair(transmission, 0.0, 0.0, 2) if transmission > 0.0 else NO_PATH
        return NO_PATH

    def _booster_osnr_db(self, sender: str, launched_w: float) -> float:
        """Return the OSNR in dB (0.1 nm) behind the amplifiers at a module's inputs; infinite without amplifiers."""
        figures_db = [path.noise_figure_db for path in self.wiring.inputs_of(sender) if self._booster_db(path) > 0.0]
        if not figures_db:
            return math.inf
        # A single amplifier gives 58 dB + input power in dBm - noise figure.
        return OSNR_OF_0_DBM_DB + dbm_from_w(launched_w) - max(figures_db)

    def _mesh_pair(self, sender: str, receiver: str, launch: CoherentLaunch) -> PathPair:
        inputs = [(index, self._beam_at_input(index).gain) for index in self._sources.inputs_of(sender)]
        outputs = [
            (output, self._output_gain(output) * self._beam_before_splitter(output).gain * output.receiver_fraction)
            for output in self.wiring.outputs_of(receiver)
        ]

        def jones_at(frequency_hz: float) -> NDArray[np.complex128]:
            """Return the Jones matrix from the sender's to the receiver's tributaries at a frequency."""
            jones = np.zeros((2, 2), dtype=np.complex128)
            for index, input_gain in inputs:
                fields = self._output_fields(index, frequency_hz) * math.sqrt(self._input_gain(index) * input_gain)
                for output, output_gain in outputs:
                    row = _TRIBUTARY[output.tributary or "x"]
                    jones += (
                        math.sqrt(output_gain) * fields[output.port] * np.outer(row, self._te_of_tributaries(index))
                    )
            return jones

        return path_pair(jones_at, launch.frequency_hz)

    def _te_of_tributaries(self, index: int) -> NDArray[np.complex128]:
        """Return the TE field at the chip per unit field of each launched polarization of one input, shape ``(2,)``."""
        tributary = self.wiring.inputs[index].tributary
        if tributary is not None:  # a splitter before the mesh: the input receives one tributary only
            return _TRIBUTARY[tributary]
        chain = self.chains[index]
        through: NDArray[np.complex128] = (chain.fibre_out @ self._controller_jones[index] @ chain.fibre_in)[0]
        return through

    def meter_w(self, meter: str, channel: int) -> float:
        """Return the power at one channel of a power meter in W."""
        return self.meter_light(meter, channel).power_w

    def meter_light(self, meter: str, channel: int) -> Light:
        """Return the light at one meter channel, with the mean wavelength weighted by power."""
        self._update_world()
        return self._meter_light(meter, channel)

    def meter_light_at(self, meter: str, channel: int, at_s: float) -> Light:
        """Return the light at one meter channel, with each sweeping laser where it was at the time ``at_s`` (s).

        Heater currents, switches and lasers that do not sweep are taken as they are now.
        """
        self._update_world()
        now_s = self._now()
        if at_s >= now_s or not self.swept_lasers:
            return self._meter_light(meter, channel)
        present = {name: light_at(now_s) for name, light_at in self.swept_lasers.items()}
        past = {name: light_at(at_s) for name, light_at in self.swept_lasers.items()}
        moved = [name for name in present if past[name] != present[name]]
        try:
            for name in moved:
                self._sources.set_lines(name, [past[name]])
            self._follow_state()
            return self._meter_light(meter, channel)
        finally:
            for name in moved:
                self._sources.set_lines(name, [present[name]])

    def _meter_light(self, meter: str, channel: int) -> Light:
        power_w = power_nm = 0.0
        for beam in self._tapped_beams(meter, channel):
            nm = [wavelength_m_from_frequency_hz(hertz) * 1e9 for hertz in self._sources.frequencies_hz]
            power_w += beam.total_w
            power_nm += float(beam.powers_w @ nm) + beam.noise_w * self._nominal_nm
        return Light(power_w, power_nm / power_w if power_w > 0.0 else self._nominal_nm)

    def _tapped_beams(self, instrument: str, channel: int) -> list[Beam]:
        taps = self._tapped_fibres.get((instrument, channel), ())
        return [
            self._beam_before_splitter(path).times(fraction * 10.0 ** (self._moved.coupling_db(path) / 10.0))
            for path, fraction in taps
            if self._moved.is_plugged(path)
        ]

    def spectrum(self, analyzer: str, channel: int = 1) -> tuple[list[SpectralLine], float]:
        """Return the lines at a spectrum analyser, one per source and frequency, and the amplifier noise in W/Hz."""
        self._update_world()
        lines, noise = [], 0.0
        for beam in self._tapped_beams(analyzer, channel):
            noise += beam.noise_w_per_hz
            for source, hertz, power_w in zip(
                self._sources.names, self._sources.frequencies_hz, beam.powers_w.tolist(), strict=True
            ):
                if power_w <= 0.0:
                    continue
                launch = self._sources.coherent.get(source)
                if launch is None:
                    lines.append(SpectralLine(power_w, hertz, 0.0, math.inf))
                else:
                    sent_db = combined_osnr_db(launch.osnr_db, self._booster_osnr_db(source, launch.power_w))
                    lines.append(SpectralLine(power_w, hertz, COHERENT_WIDTH_HZ, sent_db))
        return lines, noise

    def polarimeter_w(self, polarimeter: str) -> NDArray[np.float64]:
        """Return the Stokes parameters S0 to S3 at a polarimeter in W, shape ``(4,)``. S1 is positive for TE light."""
        self._update_world()
        stokes_w = np.zeros(4)
        for index, path in enumerate(self.wiring.inputs):
            if path.polarimeter == polarimeter:
                path_gain = 10.0 ** ((self._booster_db(path) - path.loss_db) / 10.0)
                power_w = self._beam_at_input(index).powers_w.sum() * path.polarimeter_tap * path_gain
                field = self._field_at_chip(index)
                stokes_w += power_w * np.append(float(np.vdot(field, field).real), stokes_of(field))
        return stokes_w

    def _output_gain(self, path: OutputPath) -> float:
        return float(10.0 ** (-(self.truth.access_loss_db[path.port] + path.loss_db) / 10.0))

    # Propagation -----------------------------------------------------------------------------------------------------

    def _field_at_chip(self, index: int) -> NDArray[np.complex128]:
        """Return the Jones vector (TE, TM) of one input at the chip, for unit launched power."""
        tributary = self.wiring.inputs[index].tributary
        # Both outputs of a polarization splitter share one fibre before the splitter: the fibre of the first output.
        shared = index if tributary is None else self._sources.inputs_of(self.wiring.inputs[index].source)[0]
        chain = self.chains[shared]
        field: NDArray[np.complex128] = chain.fibre_out @ (
            self._controller_jones[shared] @ (chain.fibre_in @ chain.launch)
        )
        # A splitter-rotator sends TE to one output, and TM, rotated to TE, to the other.
        return field[::-1] if tributary == "y" else field

    def _entering_fraction(self, index: int) -> tuple[float, float]:
        """Return two fractions of an input's launched power in the mesh: as TE, and as TM."""
        path = self.wiring.inputs[index]
        gain = self._input_gain(index)
        if path.source in self._sources.coherent:  # half in any polarization: the tributaries have equal power
            return 0.5 * gain, 0.0
        field = self._field_at_chip(index)
        te = abs(field[0]) ** 2
        tm = 10.0 ** (-self._physics.tm_rejection_db / 10.0) * abs(field[1]) ** 2
        tm_share = self._physics.effects.tm_path
        return float((te + (1.0 - tm_share) * tm) * gain), float(tm_share * tm * gain)

    def _input_gain(self, index: int) -> float:
        path = self.wiring.inputs[index]
        loss_db = path.loss_db + self.truth.access_loss_db[path.port] - self._booster_db(path)
        loss_db -= self._moved.coupling_db(path)
        return float(10.0 ** (-loss_db / 10.0))

    def _booster_db(self, path: InputPath) -> float:
        """Return the amplifier gain in the bench file; 0 dB for an emulated amplifier."""
        return 0.0 if self.inline_devices.has_amplifier(path.through) else path.gain_db

    def _follow_state(self) -> None:
        self.chip.follow(self._now())
        path_state = (
            self.chip.state,
            (*self._sources.coherent, *(chain.state() for chain in self.chains)),
            tuple(jones.tobytes() for jones in self._controller_jones),
            self._moved.pluggings,
        )
        if path_state != self._path_state:
            self._output_per_input.clear()
        self._path_state = path_state

    def _output_fields(self, index: int, frequency_hz: float, *, tm: bool = False) -> NDArray[np.complex128]:
        """Return the fields at all ports for light of unit power from one input."""
        line = self.wiring.inputs[index].port, frequency_hz
        is_first = frequency_hz == self.chains[index].frequency_hz
        return self.chip.fields(*line, tm=tm, soon_needed=self._bright_lines if is_first else list)

    def _bright_lines(self) -> list[tuple[int, float]]:
        """Return the port and frequency of all light that enters the mesh."""
        lines = [(i, self.chains[i].frequency_hz) for i in np.flatnonzero(self._sources.inputs_w > 0.0).tolist()]
        lines += [
            (i, line.frequency_hz)
            for source, _, line in self._sources.further_lines
            for i in self._sources.inputs_of(source)
        ]
        return [(self.wiring.inputs[i].port, hertz) for i, hertz in lines]

    @property
    def slopes(self) -> ChipSlopes:
        """Frequency dependence of the chip."""
        return self.chip.slopes

    def true_fields(self, port: int, frequency_hz: float) -> NDArray[np.complex128]:
        """Return the TE fields at all ports for unit power into one port, at the present heat."""
        self.chip.follow(self._now())
        return self.chip.fields_without_loops(port, frequency_hz)

    def cells(self, frequency_hz: float | None = None) -> ChipCells:
        """Return the parameters of the chip's PUCs and joints (waveguides between PUCs) at the present heat.

        Args:
            frequency_hz: Frequency of the light; by default the reference frequency.
        """
        self.chip.follow(self._now())
        return self.chip.cells(frequency_hz)

    def _now(self) -> float:
        """Return the time of the light. It stands still during an exchange, so that the mesh is solved once."""
        if self._reading_s is not None:
            return self._reading_s
        return self._clock.now() if self.time.exchange is None else self.time.exchange_s

    def _update_world(self) -> None:
        exchange = self.time.exchange
        if not self._updating and (exchange is None or exchange != self._updated_exchange):
            self._updating, self._updated_exchange = True, exchange
            try:
                self.time.advance()
                for action in (*self.before_reading, *self.scanning):
                    action()
            finally:
                self._updating = False
            self._drift()
            if self._slow_drift is not None and self._slow_drift.follow():
                self.disturb()
        self._follow_state()

    def _drift(self) -> None:
        """Rotate every fibre slightly: random walk of the polarization (arXiv 1507.00953)."""
        elapsed = self._clock.now() - self._fibres_drifted_s
        rate = self._physics.fibre_drift_rad2_per_s
        # At most ten steps a second, because the light of every input must be computed anew after each.
        if elapsed < 0.1 or (rate <= 0.0 and self.disturbances.resistance_per_root_s <= 0.0):
            return
        self._fibres_drifted_s = self._clock.now()
        walk = self.disturbances.resistance_per_root_s * np.sqrt(elapsed)
        if walk > 0.0:
            self.truth.heater_ohm *= 1.0 + walk * self._rng.standard_normal(len(self.truth.heater_ohm))
            self.disturb()
        # One large step is no random walk: its angle wraps, and the correlation would stop falling at 1/9.
        steps = min(math.ceil(rate * elapsed / _LARGEST_DRIFT_RAD2), _MAX_DRIFT_STEPS)
        for chain in self.chains:
            for _ in range(0 if chain.maintains else steps):
                # Half of the motion is before the controller, half after it.
                step = np.sqrt(0.5 * rate * elapsed / steps) * self._rng.standard_normal((2, 3))
                chain.fibre_in = retarder(step[0]) @ chain.fibre_in
                chain.fibre_out = retarder(step[1]) @ chain.fibre_out


def _tapped_fibres(wiring: Wiring) -> dict[tuple[str, int], list[tuple[OutputPath | FibrePath, float]]]:
    """Return the fibres at each instrument channel, with the fraction of light that the channel receives."""
    tapped: dict[tuple[str, int], list[tuple[OutputPath | FibrePath, float]]] = {}
    paths: tuple[OutputPath | FibrePath, ...] = (*wiring.outputs, *wiring.fibres)
    for path in paths:
        for tap in path.all_taps if isinstance(path, OutputPath) else path.taps:
            tapped.setdefault((tap.meter, tap.channel), []).append((path, tap.fraction))
    return tapped
