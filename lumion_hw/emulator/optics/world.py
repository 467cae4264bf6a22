"""The optical world of an emulated bench: light computed from the modules through fibres and mesh to the detectors.

Devices read the world when asked, at the clock's time. Light of different modules adds in power. The mesh takes TE.
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
from lumion_hw.emulator.chip.chip import Chip, ChipSlopes
from lumion_hw.emulator.chip.photodiodes import PhotodiodeArray
from lumion_hw.emulator.optics.bench_time import BenchTime
from lumion_hw.emulator.optics.coherent_paths import NO_PATH, CoherentLaunch, CoherentReception, PathPair, path_pair
from lumion_hw.emulator.optics.disturbances import Disturbances
from lumion_hw.emulator.optics.heat import Heat
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.light_parts import AMPLIFIED_BAND_HZ, OSNR_BAND_HZ, Beam, LightParts
from lumion_hw.emulator.optics.loops import Loops
from lumion_hw.emulator.optics.polarization import Jones, retarder, stokes_of
from lumion_hw.emulator.optics.slow_drift import SlowDrift
from lumion_hw.emulator.optics.truth import ChainTruth, MeshTruth, PhysicsParameters
from lumion_hw.interfaces.wiring import FibrePath, InlineDevice, InputPath, OutputPath, Wiring
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.quantities import (
    OSNR_OF_0_DBM_DB,
    dbm_from_w,
    frequency_hz_from_wavelength_m,
    joined_osnr_db,
    w_from_dbm,
    wavelength_m_from_frequency_hz,
)

_LARGEST_DRIFT_RAD2 = 0.25
_MOST_DRIFT_STEPS = 16  # enough to forget everything, however long the pause
_MOST_COLUMNS = 256  # solutions kept while the heat has settled; a laser that sweeps asks for a new one at every step
COHERENT_WIDTH_HZ = 60e9
"""Band that a coherent module's signal fills: that of some 60 GBd (400ZR: 59.84 GBd, OIF-400ZR-01.0)."""
_TRIBUTARY = {"x": np.array([1.0 + 0j, 0.0]), "y": np.array([0.0, 1.0 + 0j])}


@dataclass
class _FibreSource:
    """What a module or laser sends into a fibre beside the mesh."""

    power_w: float
    frequency_hz: float


@dataclass(frozen=True)
class SpectralLine:
    """Light of one source at an analyser.

    Attributes:
        power_w: Its power.
        frequency_hz: Its middle.
        width_hz: Band that it fills evenly; 0 for a laser.
        osnr_db: Signal to noise with which it was sent; infinite for a laser.
    """

    power_w: float
    frequency_hz: float
    width_hz: float
    osnr_db: float


class OpticalWorld:
    """Everything light does on the bench.

    Args:
        mesh: The mesh.
        wiring: Which module goes where.
        mesh_truth: Hidden parameters of the mesh.
        chains: Hidden parameters of each input, in the order of the wiring.
        physics: Constants shared by all of it.
        nominal_nm: Wavelength at which the mesh parameters hold.
        clock: The bench's clock.
        rng: Noise and drift of the fibres.
        slow_drift: What time does to the mesh; nothing if not given.
        offsets_rng: Draws what time does to the photodiodes.
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
        slopes = ChipSlopes(
            reference_hz,
            -nominal_nm / reference_hz,  # dλ/df in nm per Hz
            physics.eta_slope_per_nm,
            physics.differential_slope_per_nm,
        )
        self._chip = Chip(mesh, mesh_truth.draws, slopes)
        self._photodiodes = PhotodiodeArray(physics.effects, offsets_rng or np.random.default_rng(0), clock.now())
        self._inputs_of: dict[str, list[int]] = {}
        for index, path in enumerate(wiring.inputs):
            self._inputs_of.setdefault(path.source, []).append(index)
        self._taps_of = _taps_of(wiring)
        self.parts = LightParts()
        self._loops = Loops(wiring.loops)
        self._beside = {fibre.source: _FibreSource(0.0, reference_hz) for fibre in wiring.fibres}
        self._controller_of = {path.polarization: i for i, path in enumerate(wiring.inputs) if path.polarization}
        self._launched_w = np.zeros(len(wiring.inputs))
        self._turns: list[Jones] = [np.eye(2, dtype=np.complex128) for _ in chains]
        self._driven_ma = np.zeros(2 * mesh.n_pucs)
        slow = physics.effects.slow_heat_share, physics.slow_heat_tau_s
        self._heat = Heat(2 * mesh.n_pucs, physics.thermal_tau_s, clock.now(), *slow)
        self._drifted_at_s = clock.now()
        self._columns: dict[tuple[int, bool, float], NDArray[np.complex128]] = {}
        self._columns_of = (math.inf, 0.0)  # instant while heat moves, and phase of all arms they are of
        self.time = BenchTime(clock.now)
        self.disturbances = Disturbances()
        self.swapped: list[tuple[int, int]] = []
        self._coupled: dict[int, tuple[float, float]] = {}
        self._coherent: dict[str, CoherentLaunch] = {}
        self.before_reading: list[Callable[[], None]] = []
        self.swept: dict[str, Callable[[float], Light]] = {}  # lasers that know where they were
        self.before_changing: list[Callable[[], None]] = []
        self._changing = False
        self._acting = False
        self._seen: int | None = None  # the last exchange in which everything was brought up to date
        self._leaving: dict[int, NDArray[np.float64]] = {}  # by input, for the rest of the exchange
        self._looking_s: float | None = None

    # What devices do to the world ------------------------------------------------------------------------------------

    def set_transmitter(self, source: str, power_w: float) -> None:
        """A module or laser launches this power from now on."""
        self._about_to_change()
        self._launch(source, power_w)

    def _launch(self, source: str, power_w: float) -> None:
        self._leaving.clear()
        for index in self._inputs_of.get(source, ()):
            self._launched_w[index] = power_w
        if source in self._beside:
            self._beside[source].power_w = power_w

    def set_source(self, laser: str, power_w: float, wavelength_nm: float) -> None:
        """A tunable laser launches this power at this wavelength from now on."""
        self._about_to_change()
        self._shine(laser, Light(power_w, wavelength_nm))

    def _shine(self, laser: str, light: Light) -> None:
        self._launch(laser, light.power_w)
        self._tune(laser, frequency_hz_from_wavelength_m(light.wavelength_nm * 1e-9))

    def _tune(self, source: str, frequency_hz: float) -> None:
        for index in self._inputs_of.get(source, ()):
            self.chains[index].frequency_hz = frequency_hz
        if source in self._beside:
            self._beside[source].frequency_hz = frequency_hz

    def set_coherent(self, transponder: str, launch: CoherentLaunch) -> None:
        """A module of two tributaries, of equal power and without relation, launches this from now on."""
        self._coherent[transponder] = launch
        self.set_transmitter(transponder, launch.power_w)
        self._tune(transponder, launch.frequency_hz)
        for index in self._inputs_of.get(transponder, ()):
            self._coupled.pop(index, None)

    def parts_changed(self) -> None:
        """An attenuator, switch or amplifier was set: what was reckoned with its last setting is forgotten."""
        self._about_to_change()
        self._leaving.clear()

    def set_polarization(self, controller: str, jones: Jones) -> None:
        """A polarization controller turns its light by this matrix from now on."""
        index = self._controller_of.get(controller)
        if index is not None and jones is not self._turns[index]:
            self._turns[index] = jones
            self._coupled.pop(index, None)
            self._leaving.clear()

    def drive_heaters(self, currents_ma: NDArray[np.float64], at_s: float) -> None:
        """The board latches a table of heater currents at an instant; shape ``(2E,)``, by PUC and arm."""
        self._driven_ma = currents_ma.copy()
        # Wires exchanged by a fault: the board drives one heater and warms the other.
        for one, other in self.swapped:
            self._driven_ma[[one, other]] = self._driven_ma[[other, one]]
        self._heat.aim(self.truth.heater_power_mw(self._driven_ma), at_s)
        self._columns.clear()
        self._leaving.clear()

    def disturb(self) -> None:
        """The truth was changed (a fault): forget what was computed from it. Heat follows as after any change."""
        self._about_to_change()
        self._heat.aim(self.truth.heater_power_mw(self._driven_ma), self._now())
        self._columns.clear()
        self._coupled.clear()
        self._leaving.clear()

    def turn_fibre(self, transponder: str, angle_rad: float = np.pi) -> None:
        """A fibre was moved: the polarization at the chip turns on its sphere; half a turn leads to the opposite."""
        self._about_to_change()
        index = self._inputs_of[transponder][0]
        chain = self.chains[index]
        state = stokes_of(self._arriving(index))
        state /= np.linalg.norm(state)
        axis = self._rng.standard_normal(3)
        axis -= (axis @ state) * state  # half a turn about any axis at right angles leads to the opposite pole
        chain.fibre_out = retarder(angle_rad * axis / np.linalg.norm(axis)) @ chain.fibre_out
        self._coupled.clear()
        self._leaving.clear()

    # What devices read -----------------------------------------------------------------------------------------------

    def leaving_w(self, counts: Callable[[float], bool] | None = None) -> NDArray[np.float64]:
        """Return the power leaving the mesh at every port on the chip, shape ``(n_ports,)``, at the present time.

        Args:
            counts: Says of a frequency in Hz whether its light counts; all light and noise if not given.
        """
        self._bring_up_to_date()
        total = np.zeros(self.mesh.n_ports)
        for index, chain in enumerate(self.chains):
            if counts is None or counts(chain.frequency_hz):
                total += self._leaving_of(index)
        if counts is None and self._noisy:
            total += AMPLIFIED_BAND_HZ * self._noise_leaving_w_per_hz()
        return total

    @property
    def _noisy(self) -> bool:
        """Whether anything in front of the mesh may add noise."""
        return any(path.through for path in self.wiring.inputs)

    def _arrived(self, index: int) -> Beam:
        """Return the light of one input behind the devices on its way."""
        launched = Beam(self._launched_w[index : index + 1])
        return self.parts.passed(launched, self.wiring.inputs[index].through)

    def _noise_leaving_w_per_hz(self) -> NDArray[np.float64]:
        """Return the noise of the amplifiers in front of the mesh at every port; it goes the way of their light."""
        noise = np.zeros(self.mesh.n_ports)
        for index, path in enumerate(self.wiring.inputs):
            density = self._arrived(index).noise_w_per_hz if path.through else 0.0
            if density > 0.0:
                # Noise has no polarization: half of it is TE.
                fields = self._fields(index, self.chains[index].frequency_hz)
                noise += 0.5 * density * self._input_gain(index) * np.abs(fields) ** 2
        return noise

    def _leaving_of(self, index: int) -> NDArray[np.float64]:
        """Return the power leaving the mesh at every port that came in by one input; the same array in an exchange."""
        if self.time.exchange is None or self._looking_s is not None:
            return self._leaving_now(index)
        if index not in self._leaving:
            self._leaving[index] = self._leaving_now(index)
        return self._leaving[index]

    def _leaving_now(self, index: int) -> NDArray[np.float64]:
        launched_w = float(self._arrived(index).powers_w[0])
        if launched_w <= 0.0:
            return np.zeros(self.mesh.n_ports)
        if index not in self._coupled:
            self._coupled[index] = self._entering_fraction(index)
        drift = self.disturbances.power(self.wiring.inputs[index].port, self._now())
        frequency_hz = self.chains[index].frequency_hz
        te, tm = self._coupled[index]
        leaving: NDArray[np.float64] = te * np.abs(self._fields(index, frequency_hz)) ** 2
        if tm > 0.0:
            leaving += tm * np.abs(self._fields(index, frequency_hz, tm=True)) ** 2
        return launched_w * drift * leaving

    def monitor_ma(
        self, ports: NDArray[np.int64], responsivity_a_per_w: float, n_avg: int, at_s: float | None = None
    ) -> NDArray[np.float64]:
        """Return the photocurrents of the on-chip monitors, with noise.

        Args:
            ports: Ports of the monitors.
            responsivity_a_per_w: Photocurrent over light.
            n_avg: Number of scans averaged.
            at_s: Instant whose heat counts, for a board that makes up for what fell due; the clock's if not given.
        """
        self._looking_s, before = at_s, self._looking_s
        try:
            power_w = self.leaving_w()[ports] * self.truth.monitor_scale[ports]
        finally:
            self._looking_s = before
        floor_w = w_from_dbm(self._physics.monitor_noise_floor_dbm)
        # Noise in proportion to the light and noise of the amplifier have no relation; a mean over scans weakens both.
        sigma_w = np.hypot(self._physics.monitor_noise_relative * power_w, floor_w) / np.sqrt(n_avg)
        noisy_w = power_w + sigma_w * self._rng.standard_normal(len(ports))
        current_ma = self._photodiodes.read_ma(noisy_w * responsivity_a_per_w * 1e3, self._now())
        # A photocurrent has one sign, and the converter ends at 0.
        read_ma: NDArray[np.float64] = np.maximum(current_ma, 0.0)
        return read_ma

    def received_w(self, transponder: str) -> float:
        """Return the power at a module's receiver."""
        return sum(beam.total_w for beam in self._received(transponder))

    def received_from_w(self, transponder: str) -> dict[str, float]:
        """Return the power at a module's receiver by the module or laser that sent it; the dark ones are left out."""
        found: dict[str, float] = {}
        for beam in self._received(transponder):
            for source, power_w in zip(self._sources, beam.powers_w.tolist(), strict=True):
                if power_w > 0.0:
                    found[source] = found.get(source, 0.0) + power_w
        return found

    @property
    def _sources(self) -> list[str]:
        """Name of the source of each light, those of the inputs first."""
        return [path.source for path in self.wiring.inputs] + list(self._beside)

    @property
    def _frequencies_hz(self) -> list[float]:
        """Frequency of each light."""
        return [chain.frequency_hz for chain in self.chains] + [each.frequency_hz for each in self._beside.values()]

    def _received(self, transponder: str) -> list[Beam]:
        """Return the light at a module's receiver, of each fibre that leads to it."""
        self._bring_up_to_date()
        paths: list[OutputPath | FibrePath] = [*self.wiring.outputs_of(transponder)]
        paths += [fibre for fibre in self.wiring.fibres if fibre.transponder == transponder]
        return [self._behind(path).times(path.receiver_fraction) for path in paths]

    def _behind(self, path: OutputPath | FibrePath) -> Beam:
        """Return the light in front of the splitter of an output, or of a fibre beside the mesh."""
        powers_w = np.zeros(len(self.chains) + len(self._beside))
        if isinstance(path, FibrePath):
            place = len(self.chains) + list(self._beside).index(path.source)
            powers_w[place] = self._beside[path.source].power_w
            return self.parts.passed(Beam(powers_w), path.through).times(10.0 ** (-path.loss_db / 10.0))
        gain = self._output_gain(path)
        powers_w[: len(self.chains)] = [gain * self._leaving_of(i)[path.port] for i in range(len(self.chains))]
        noise = gain * float(self._noise_leaving_w_per_hz()[path.port]) if self._noisy else 0.0
        return self.parts.passed(Beam(powers_w, noise), path.through)

    def part_w(self, device: str, channel: int = 1) -> tuple[float, float]:
        """Return the power before and behind a device on the way of light, in watts; 0 where nothing leads through it.

        Args:
            device: Device name.
            channel: Channel of an attenuator, entry port of a switch, 1 of an amplifier.
        """
        self._bring_up_to_date()
        before_w = behind_w = 0.0

        def leads(through: Sequence[InlineDevice]) -> bool:
            return any((part.device, part.channel) == (device, channel) for part in through)

        looks: list[Callable[[], Beam]] = [
            partial(self._arrived, index) for index, path in enumerate(self.wiring.inputs) if leads(path.through)
        ]
        beside: list[OutputPath | FibrePath] = [*self.wiring.outputs, *self.wiring.fibres]
        looks += [partial(self._behind, path) for path in beside if leads(path.through)]
        for look in looks:
            with self.parts.noting() as seen:
                look()
            one, other = seen[device, channel]
            before_w, behind_w = before_w + one, behind_w + other
        return before_w, behind_w

    def received_coherent(self, transponder: str, band_hz: float) -> CoherentReception | None:
        """Return the brightest signal of two tributaries at a module's receiver, ``None`` if there is none.

        Args:
            transponder: The receiving module.
            band_hz: Light that is farther than this from the signal's carrier does not disturb it.
        """
        beams = self._received(transponder)
        total_w = sum(beam.total_w for beam in beams)
        candidates = [
            (sender, launch, pair)
            for sender, launch in self._coherent.items()
            if launch.power_w > 0.0
            for pair in (self._path_pair(sender, transponder, launch), self._straight_pair(sender, transponder))
            if pair.rank > 0
        ]
        if not candidates:
            return None
        sender, launch, pair = max(candidates, key=lambda item: item[1].power_w * item[2].transmission)
        signal_w = launch.power_w * pair.transmission
        # Other light counts as noise where it beats within the receiver's band; beyond, its filter takes it out.
        near = np.abs(np.array(self._frequencies_hz) - launch.frequency_hz) <= band_hz
        other_w = sum(float(beam.powers_w[near].sum()) for beam in beams) - signal_w
        # Below a part in 1e12 the difference of the two sums is rounding.
        crosstalk_db = 10.0 * math.log10(signal_w / other_w) if other_w > 1e-12 * signal_w else math.inf
        noise_w = OSNR_BAND_HZ * sum(beam.noise_w_per_hz for beam in beams)
        amplified_db = 10.0 * math.log10(signal_w / noise_w) if noise_w > 0.0 else math.inf
        booster_db = self._booster_osnr_db(sender, launch.power_w)
        osnr_db = joined_osnr_db(launch.osnr_db, booster_db, crosstalk_db, amplified_db)
        return CoherentReception(sender, launch, pair, signal_w, total_w, osnr_db)

    def _straight_pair(self, sender: str, receiver: str) -> PathPair:
        """Return what a fibre beside the mesh does to the tributaries of one module on their way to another."""
        for fibre in self.wiring.fibres:
            if (fibre.source, fibre.transponder) == (sender, receiver):
                transmission = self._behind(fibre).gain * fibre.receiver_fraction
                return PathPair(transmission, 0.0, 0.0, 2) if transmission > 0.0 else NO_PATH
        return NO_PATH

    def _booster_osnr_db(self, sender: str, launched_w: float) -> float:
        """Return what the amplifiers before a module's inputs leave of its signal to noise in 0.1 nm."""
        figures_db = [path.noise_figure_db for path in self.wiring.inputs_of(sender) if self._booster_db(path) > 0.0]
        if not figures_db:
            return math.inf
        # One amplifier: 58 dB + input power in dBm - noise figure.
        return OSNR_OF_0_DBM_DB + dbm_from_w(launched_w) - max(figures_db)

    def _path_pair(self, sender: str, receiver: str, launch: CoherentLaunch) -> PathPair:
        """Return what the mesh does to the tributaries of one module on their way to another."""
        inputs = [(index, self._arrived(index).gain) for index in self._inputs_of.get(sender, [])]
        outputs = [(out, self._behind(out).gain * out.receiver_fraction) for out in self.wiring.outputs_of(receiver)]

        def jones_at(frequency_hz: float) -> NDArray[np.complex128]:
            jones = np.zeros((2, 2), dtype=np.complex128)
            for index, passed in inputs:
                fields = self._fields(index, frequency_hz) * math.sqrt(self._input_gain(index) * passed)
                for out, share in outputs:
                    gain = self._output_gain(out) * share
                    row = _TRIBUTARY[out.tributary or "x"]
                    jones += math.sqrt(gain) * fields[out.port] * np.outer(row, self._taken(index))
            return jones

        return path_pair(jones_at, launch.frequency_hz)

    def _taken(self, index: int) -> NDArray[np.complex128]:
        """Return which of the two tributaries' fields an input takes: one behind a splitter, else the TE of both."""
        tributary = self.wiring.inputs[index].tributary
        if tributary is not None:
            return _TRIBUTARY[tributary]
        chain = self.chains[index]
        through: NDArray[np.complex128] = (chain.fibre_out @ self._turns[index] @ chain.fibre_in)[0]
        return through

    def tapped_w(self, meter: str, channel: int) -> float:
        """Return the power at one channel of a power meter."""
        return self.tapped(meter, channel).power_w

    def tapped(self, meter: str, channel: int) -> Light:
        """Return the light at one channel of a power meter; its wavelength is the mean by power, nominal if dark."""
        self._bring_up_to_date()
        return self._light_at(meter, channel)

    def tapped_at(self, meter: str, channel: int, at_s: float) -> Light:
        """Return the light at one channel at an instant that has passed: of swept lasers then, of all else now.

        A laser passes many wavelengths between two looks at the bench; what else moves is slow beside that.
        """
        self._bring_up_to_date()
        now_s = self._now()
        if at_s >= now_s or not self.swept:
            return self._light_at(meter, channel)
        present = {name: light_at(now_s) for name, light_at in self.swept.items()}
        past = {name: light_at(at_s) for name, light_at in self.swept.items()}
        moved = [name for name in present if past[name] != present[name]]
        try:
            for name in moved:
                self._shine(name, past[name])
            return self._light_at(meter, channel)
        finally:
            for name in moved:
                self._shine(name, present[name])

    def _light_at(self, meter: str, channel: int) -> Light:
        power_w = power_nm = 0.0
        for beam in self._tapped(meter, channel):
            nm = [wavelength_m_from_frequency_hz(hertz) * 1e9 for hertz in self._frequencies_hz]
            power_w += beam.total_w
            power_nm += float(beam.powers_w @ nm) + beam.noise_w * self._nominal_nm
        return Light(power_w, power_nm / power_w if power_w > 0.0 else self._nominal_nm)

    def _tapped(self, meter: str, channel: int) -> list[Beam]:
        taps = self._taps_of.get((meter, channel), ())
        return [self._behind(path).times(fraction) for path, fraction in taps]

    def spectrum(self, analyzer: str, channel: int = 1) -> tuple[list[SpectralLine], float]:
        """Return the light at a spectrum analyser: a line for every source, and the noise of amplifiers in W/Hz."""
        self._bring_up_to_date()
        lines, noise = [], 0.0
        for beam in self._tapped(analyzer, channel):
            noise += beam.noise_w_per_hz
            for source, hertz, power_w in zip(self._sources, self._frequencies_hz, beam.powers_w.tolist(), strict=True):
                if power_w <= 0.0:
                    continue
                launch = self._coherent.get(source)
                if launch is None:
                    lines.append(SpectralLine(power_w, hertz, 0.0, math.inf))
                else:
                    sent_db = joined_osnr_db(launch.osnr_db, self._booster_osnr_db(source, launch.power_w))
                    lines.append(SpectralLine(power_w, hertz, COHERENT_WIDTH_HZ, sent_db))
        return lines, noise

    def polarimeter_w(self, polarimeter: str) -> NDArray[np.float64]:
        """Return S0, S1, S2, S3 in watts at a polarimeter, on the sphere of the chip: S1 is TE; shape ``(4,)``."""
        self._bring_up_to_date()
        stokes_w = np.zeros(4)
        for index, path in enumerate(self.wiring.inputs):
            if path.polarimeter == polarimeter:
                share = (
                    self._arrived(index).powers_w[0]
                    * path.polarimeter_tap
                    * 10.0 ** ((self._booster_db(path) - path.loss_db) / 10.0)
                )
                field = self._arriving(index)
                stokes_w += share * np.append(float(np.vdot(field, field).real), stokes_of(field))
        return stokes_w

    def _output_gain(self, path: OutputPath) -> float:
        """Return power in the fibre behind a port over power leaving the mesh there."""
        return float(10.0 ** (-(self.truth.access_loss_db[path.port] + path.loss_db) / 10.0))

    # Light -----------------------------------------------------------------------------------------------------------

    def _arriving(self, index: int) -> NDArray[np.complex128]:
        """Return the Jones vector (TE, TM) of one input at the chip, of length 1 but for the controller's loss."""
        tributary = self.wiring.inputs[index].tributary
        # Both outputs of a splitter have one fibre before them, that of the first.
        shared = index if tributary is None else self._inputs_of[self.wiring.inputs[index].source][0]
        chain = self.chains[shared]
        arriving: NDArray[np.complex128] = chain.fibre_out @ (self._turns[shared] @ (chain.fibre_in @ chain.launch))
        # A splitter-rotator gives one output what is TE, and the other what is TM, turned to TE.
        return arriving[::-1] if tributary == "y" else arriving

    def _entering_fraction(self, index: int) -> tuple[float, float]:
        """Return power in the mesh over launched power, for one input: as TE, and as TM that goes its own way.

        TM leaks in through the port. TE and TM add in power: were TM a field that goes the way of TE, some polarization
        would hide it altogether.
        """
        path = self.wiring.inputs[index]
        gain = self._input_gain(index)
        if path.source in self._coherent:  # half of it, whatever its polarization: both tributaries count alike
            return 0.5 * gain, 0.0
        arriving = self._arriving(index)
        te = abs(arriving[0]) ** 2
        tm = 10.0 ** (-self._physics.tm_rejection_db / 10.0) * abs(arriving[1]) ** 2
        own = self._physics.effects.tm_path
        return float((te + (1.0 - own) * tm) * gain), float(own * tm * gain)

    def _input_gain(self, index: int) -> float:
        """Return TE power in the mesh over TE power launched, for one input."""
        path = self.wiring.inputs[index]
        loss_db = path.loss_db + self.truth.access_loss_db[path.port] - self._booster_db(path)
        return float(10.0 ** (-loss_db / 10.0))

    def _booster_db(self, path: InputPath) -> float:
        """Return the gain of an amplifier that the file tells; one that is a device gives what it gives."""
        return 0.0 if self.parts.amplified(path.through) else path.gain_db

    def _fields(self, index: int, frequency_hz: float, *, tm: bool = False) -> NDArray[np.complex128]:
        """Return the fields at all ports for unit light into the mesh by one input; kept while nothing moves."""
        # While heat moves every instant finds another chip; once it rests, a column serves until something changes.
        settled, now = self._heat.follow(self._now()), self._now()
        state = math.inf if settled else now, self.disturbances.common_phase_rad(now)
        if state != self._columns_of or len(self._columns) >= _MOST_COLUMNS:
            self._columns.clear()
            self._columns_of = state
        if (index, tm, frequency_hz) not in self._columns:
            self._solve(index, frequency_hz)
        return self._columns[index, tm, frequency_hz]

    def _solve(self, index: int, frequency_hz: float) -> None:
        """Solve for the light of one input, and with it for that of all other inputs that has not been solved for.

        Whoever looks at one looks at all, and eight together cost little more than one: they fill the lanes of the
        elimination.
        """
        wanted = [(index, frequency_hz)]
        if frequency_hz == self.chains[index].frequency_hz:
            lit = [
                (other, self.chains[other].frequency_hz) for other in np.flatnonzero(self._launched_w > 0.0).tolist()
            ]
            wanted += [each for each in lit if each[0] != index and (each[0], False, each[1]) not in self._columns]
        ports = np.array([self.wiring.inputs[each].port for each, _ in wanted])
        cells = self._cells(np.array([hertz for _, hertz in wanted]))
        kinds: tuple[NDArray[np.complex128], ...]
        if self._physics.effects.tm_path > 0.0:
            kinds = self._chip.leaving_with_tm(cells, ports)
        else:
            kinds = (self._chip.leaving(cells, ports),)
        if self._loops.ports:
            kinds = (self._closed(kinds[0], [hertz for _, hertz in wanted]), *kinds[1:])
        for tm, columns in enumerate(kinds):
            for (each, hertz), column in zip(wanted, columns, strict=True):
                self._columns[each, bool(tm), hertz] = column

    def _closed(self, columns: NDArray[np.complex128], hertz: Sequence[float]) -> NDArray[np.complex128]:
        """Return the fields of some light when fibres lead it back into the mesh."""
        ports = np.array(self._loops.ports)
        of_ports = {each: self._chip.leaving(self._cells(np.full(len(ports), each)), ports) for each in set(hertz)}
        access_db = self.truth.access_loss_db
        closed = [
            self._loops.closed(column, of_ports[each], each, access_db)
            for column, each in zip(columns, hertz, strict=True)
        ]
        return np.array(closed)

    @property
    def slopes(self) -> ChipSlopes:
        """How the chip follows the frequency of light, and the frequency at which its hidden truth holds."""
        return self._chip.slopes

    def true_fields(self, port: int, frequency_hz: float) -> NDArray[np.complex128]:
        """Return the fields that leave all ports for unit light in the mesh at one, at the present heat: TE alone.

        For tests and benchmarks, as all of the hidden truth.
        """
        column: NDArray[np.complex128] = self._chip.leaving(self.cells(frequency_hz), np.array([port]))[0]
        return column

    def cells(self, frequency_hz: float | None = None) -> ChipCells:
        """Return the chip's cells at the present heat.

        Args:
            frequency_hz: Frequency of the light; that at which splittings and phases hold if not given.
        """
        self._heat.follow(self._now())
        return self._cells(frequency_hz)

    def _cells(self, frequency_hz: float | NDArray[np.float64] | None) -> ChipCells:
        """Return the chip's cells at the heat last looked at."""
        common = self.truth.common_phase_rad + self.disturbances.common_phase_rad(self._now())
        return self._chip.cells(self.truth.parts, self._heat.present_mw, common, frequency_hz)

    def _about_to_change(self) -> None:
        """Let who watches the light by itself see it as it has been until now."""
        if not self._changing:
            self._changing = True
            try:
                for action in self.before_changing:
                    action()
            finally:
                self._changing = False

    def _now(self) -> float:
        """Return the instant looked at: the clock's, but for a board that is late."""
        return self._clock.now() if self._looking_s is None else self._looking_s

    def _bring_up_to_date(self) -> None:
        """Let devices do what was due, and fibres and chip drift; one that looks meanwhile sees the light as it is.

        Once in an exchange: each device would find nothing to do the second time, at a call or more per device, and a
        meter looks twice for every channel it reads.
        """
        if self._acting or (self.time.exchange is not None and self.time.exchange == self._seen):
            return
        self._acting, self._seen = True, self.time.exchange
        self._leaving.clear()
        try:
            self.time.advance()
            for action in self.before_reading:
                action()
        finally:
            self._acting = False
        self._drift()
        if self._slow_drift is not None and self._slow_drift.follow():
            self.disturb()
        self._leaving.clear()

    def _drift(self) -> None:
        """Turn every fibre a little: a random walk of the polarization (arXiv 1507.00953)."""
        elapsed = self._clock.now() - self._drifted_at_s
        rate = self._physics.fibre_drift_rad2_per_s
        # A step makes every input be reckoned anew, so there are none more often than ten a second.
        if elapsed < 0.1 or (rate <= 0.0 and self.disturbances.resistance_per_root_s <= 0.0):
            return
        self._drifted_at_s = self._clock.now()
        self._coupled.clear()
        walk = self.disturbances.resistance_per_root_s * np.sqrt(elapsed)
        if walk > 0.0:
            self.truth.heater_ohm *= 1.0 + walk * self._rng.standard_normal(len(self.truth.heater_ohm))
        # One large step is no random walk: its angle wraps, and the correlation would stop at a ninth.
        steps = min(math.ceil(rate * elapsed / _LARGEST_DRIFT_RAD2), _MOST_DRIFT_STEPS)
        for chain in self.chains:
            for _ in range(steps):
                # Half of the motion before the controller, half behind it.
                step = np.sqrt(0.5 * rate * elapsed / steps) * self._rng.standard_normal((2, 3))
                chain.fibre_in = retarder(step[0]) @ chain.fibre_in
                chain.fibre_out = retarder(step[1]) @ chain.fibre_out


def _taps_of(wiring: Wiring) -> dict[tuple[str, int], list[tuple[OutputPath | FibrePath, float]]]:
    """Return by device and channel the fibres that it looks at, and the share of their light that it sees."""
    found: dict[tuple[str, int], list[tuple[OutputPath | FibrePath, float]]] = {}
    ways: tuple[OutputPath | FibrePath, ...] = (*wiring.outputs, *wiring.fibres)
    for way in ways:
        for tap in way.all_taps if isinstance(way, OutputPath) else way.taps:
            found.setdefault((tap.meter, tap.channel), []).append((way, tap.fraction))
    return found
