"""Physical effects from the literature that no author of the fit has seen. Do not open before the numbers are in.

Sizes are those of real benches. "Assumed" marks a size without a source.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.assembly import EmulatedBench
from lumion_hw.emulator.chip.cell import ChipCells
from lumion_hw.emulator.chip.heat_spread import arm_centres_mm
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.polarization import retarder
from lumion_hw.quantities import wavelength_m_from_frequency_hz
from tests.calibration.planted_physics import Moment, Plant, Real, at_each_setting, while_read

Complex = NDArray[np.complex128]

_RAD_PER_K = 0.6
"""Phase of a PUC per kelvin (silicon, 811 µm)."""
_MAX_MA = 2.5
_P_PI_MW = 1.34


# Tools ----------------------------------------------------------------------------------------------------------------


def _reading(start: Callable[[EmulatedBench], Callable[[Real, float], Real]]) -> Plant:
    """Return a plant that changes readings; ``start`` returns a function of readings (mA) and time (s)."""

    def plant(bench: EmulatedBench) -> None:
        read, monitor_ma = start(bench), bench.world.monitor_ma

        def planted(
            ports: NDArray[np.int64], responsivity_a_per_w: float, n_avg: int, at_s: float | None = None
        ) -> Real:
            current_ma = monitor_ma(ports, responsivity_a_per_w, n_avg, at_s)
            return np.maximum(read(current_ma, bench.clock.now() if at_s is None else at_s), 0.0)

        bench.world.monitor_ma = planted  # type: ignore[method-assign]

    return plant


def _switching(start: Callable[[EmulatedBench], Callable[[Callable[[str, float], None], str, float], None]]) -> Plant:
    """Return a plant that acts when a source is switched; ``start`` returns what is called instead."""

    def plant(bench: EmulatedBench) -> None:
        act, set_transmitter = start(bench), bench.world.set_transmitter
        bench.world.set_transmitter = lambda source, power_w: act(  # type: ignore[method-assign]
            set_transmitter, source, power_w
        )

    return plant


def _carrying(change: Callable[[EmulatedBench, Real], Real]) -> Plant:
    """Return a plant that changes the currents (mA) that heaters carry."""

    def plant(bench: EmulatedBench) -> None:
        heaters = bench.world.truth.variations.heaters
        carried_ma = heaters.carried_ma
        object.__setattr__(heaters, "carried_ma", lambda driven_ma: carried_ma(change(bench, driven_ma)))

    return plant


def _telegraph(rng: np.random.Generator, dwell_s: float, now_s: float) -> Callable[[float], float]:
    """Return a random telegraph signal, +1 or -1 as a function of time, with a mean dwell time."""
    edges_s = now_s + np.cumsum(rng.exponential(dwell_s, 20_000))
    first = float(rng.choice([-1.0, 1.0]))
    return lambda at_s: first * (-1.0) ** int(np.searchsorted(edges_s, at_s))


class _LaggingHeat:
    """Heat of all heaters behind a slow low-pass filter."""

    def __init__(self, bench: EmulatedBench, tau_s: float) -> None:
        self._truth, self._tau_s, self._at_s = bench.world.truth, tau_s, bench.clock.now()
        self._target_mw = self._heat_mw = np.zeros(len(bench.world.truth.p_pi_mw))
        at_each_setting(lambda bench: self._set)(bench)

    def _set(self, currents_ma: Real, at_s: float) -> Real:
        self.at(at_s)
        self._target_mw = self._truth.heater_power_mw(currents_ma)
        return currents_ma

    def at(self, at_s: float) -> Real:
        decay = math.exp(-max(at_s - self._at_s, 0.0) / self._tau_s)
        self._heat_mw = self._target_mw + (self._heat_mw - self._target_mw) * decay
        self._at_s = max(at_s, self._at_s)
        return self._heat_mw


def _add_phases(bench: EmulatedBench, arms_rad: Real, joints_rad: Real | float = 0.0) -> None:
    """Add phases to arms and joints. The common phase of a PUC goes in halves to the joints at its ends."""
    truth, common_rad = bench.world.truth, arms_rad[1::2]
    truth.passive_phase = truth.passive_phase + arms_rad[0::2] - common_rad
    truth.joint_phase = truth.joint_phase + joints_rad + 0.5 * common_rad[bench.world.mesh.joints // 4].sum(axis=1)


# Light ----------------------------------------------------------------------------------------------------------------


def leaking_sources(off_dbm: float = -30.0) -> Plant:
    """Sources that are switched off still send some light.

    IEEE 802.3-2022, clause 52: average launch power of an OFF 10GBASE-E transmitter up to -30 dBm.
    """

    def start(bench: EmulatedBench) -> Callable[[Callable[[str, float], None], str, float], None]:
        return lambda send, source, power_w: send(source, max(power_w, 1e-3 * 10.0 ** (off_dbm / 10.0)))

    return _switching(start)


def side_mode(suppression_db: float = 30.0, spacing_hz: float = 160e9) -> Plant:
    """Each laser sends a second longitudinal mode 1.3 nm away, with the least suppression that the standard allows.

    IEEE 802.3-2022, clause 52: side-mode suppression of 10GBASE-E at least 30 dB. Spacing: a DFB laser of 300 µm.
    """

    def start(bench: EmulatedBench) -> Callable[[Callable[[str, float], None], str, float], None]:
        world, share = bench.world, 10.0 ** (-suppression_db / 10.0)
        hertz = {path.source: chain.frequency_hz for path, chain in zip(world.wiring.inputs, world.chains, strict=True)}

        def switch(send: Callable[[str, float], None], source: str, power_w: float) -> None:
            send(source, power_w)
            if power_w > 0.0 and source in hertz:
                nm = [1e9 * wavelength_m_from_frequency_hz(hertz[source] + hz) for hz in (0.0, spacing_hz)]
                world.set_lines(source, [Light((1.0 - share) * power_w, nm[0]), Light(share * power_w, nm[1])])

        return switch

    return _switching(start)


def mode_hops(spacing_hz: float = 100e6, dwell_s: float = 2.0) -> Plant:
    """Each laser hops between two modes of the cavity that it forms with the first connector, 1 m away.

    Tkach and Chraplyvy, JLT 4, 1655 (1986), regime II; Petermann, Laser Diode Modulation and Noise (1988).
    """

    def start(bench: EmulatedBench) -> Callable[[Moment], None]:
        chains, rng = bench.world.chains, bench.rng("sealed mode hops")
        signals = [_telegraph(rng, dwell_s, bench.clock.now()) for _ in chains]

        def change(moment: Moment) -> None:
            for chain, signal in zip(chains, signals, strict=True):
                chain.frequency_hz += 0.5 * spacing_hz * signal(moment.at_s)

        return change

    return while_read(start)


def feedback_pulling(pull_hz: float = 300e6) -> Plant:
    """Light that the mesh returns to a laser pulls its frequency, by ``pull_hz`` per unit of returned field.

    Lang and Kobayashi, JQE 16, 347 (1980): the shift is κ·√(1+α²)/2π·sin of the round-trip phase. With an isolator of
    30 dB, two facets of 7 dB and a photon life of 8 ps, some 100 MHz per unit. The fibre turns the phase slowly.
    """

    def plant(bench: EmulatedBench) -> None:
        world, output_w, phase = bench.world, bench.world.mesh_output_w, bench.rng("sealed feedback").uniform(0.0, 6.28)
        dark = set[str]()

        def switch(send: Callable[[str, float], None], source: str, power_w: float) -> None:
            (dark.discard if power_w > 0.0 else dark.add)(source)
            send(source, power_w)

        def pulled_w(includes: Callable[[float], bool] | None = None) -> Real:
            hertz = [chain.frequency_hz for chain in world.chains]
            turn = np.exp(1j * (phase + 0.1 * bench.clock.now()))
            for path, chain in zip(world.wiring.inputs, world.chains, strict=True):
                if path.source not in dark:
                    returned = world.true_fields(path.port, chain.frequency_hz)[path.port]
                    chain.frequency_hz += pull_hz * float((turn * returned).imag)
            try:
                return output_w(includes)
            finally:
                for chain, frequency_hz in zip(world.chains, hertz, strict=True):
                    chain.frequency_hz = frequency_hz

        _switching(lambda bench: switch)(bench)
        world.mesh_output_w = pulled_w  # type: ignore[method-assign]

    return plant


def swaying_fibres(angle_rad: float = 0.3, hertz: float = 0.37) -> Plant:
    """A fan moves the patch cords, which turns the polarization to and fro before the controller.

    Patch cords in a laboratory turn by radians per second or less (random walks: arXiv 1507.00953); size assumed.
    """

    def start(bench: EmulatedBench) -> Callable[[Moment], None]:
        chains, rng = bench.world.chains, bench.rng("sealed sway")
        axes, phases = rng.standard_normal((len(chains), 3)), rng.uniform(0.0, 2.0 * np.pi, len(chains))
        axes /= np.linalg.norm(axes, axis=1)[:, None]

        def change(moment: Moment) -> None:
            for chain, axis, phase in zip(chains, axes, phases, strict=True):
                turn = angle_rad * math.sin(2.0 * np.pi * hertz * moment.at_s + phase)
                chain.launch = retarder(turn * axis) @ chain.launch

        return change

    return while_read(start)


# Package and temperature ----------------------------------------------------------------------------------------------


def warping_package(db_per_w: float = 1.0, tau_s: float = 2.0) -> Plant:
    """The package bends as the chip warms it, which moves the fibres before the facets: better here, worse there.

    Carroll et al., Applied Sciences 6, 426 (2016): 1 dB for 2 µm of misalignment; the movement per heat is assumed.
    """

    def plant(bench: EmulatedBench) -> None:
        truth, heat = bench.world.truth, _LaggingHeat(bench, tau_s)
        sign = np.linspace(-1.0, 1.0, len(truth.access_loss_db))

        def change(moment: Moment) -> None:
            warm_w = 1e-3 * float(heat.at(moment.at_s).sum())
            truth.access_loss_db = truth.access_loss_db + db_per_w * warm_w * sign

        while_read(lambda bench: change)(bench)

    return plant


def cycling_cooler(edge_k: float = 0.015, period_s: float = 4.3) -> Plant:
    """The temperature controller cycles, and the die's two ends swing against each other.

    Åström and Hägglund, PID Controllers (1995): limit cycles; Padmaraju and Bergman, Nanophotonics 3, 269 (2014): why
    millikelvins matter. The size is assumed.
    """

    def start(bench: EmulatedBench) -> Callable[[Moment], None]:
        x_mm = arm_centres_mm(bench.world.mesh)[:, 0]
        place = 2.0 * (x_mm - x_mm.min()) / np.ptp(x_mm) - 1.0

        def change(moment: Moment) -> None:
            swing = math.sin(2.0 * np.pi * moment.at_s / period_s)
            _add_phases(bench, _RAD_PER_K * edge_k * swing * place)

        return change

    return while_read(start)


def late_crosstalk(share: float = 0.5, tau_s: float = 0.3) -> Plant:
    """A share of the crosstalk goes through the submount and arrives late; the heaters' own phases do not.

    Milanizadeh et al., JLT 37, 1325 (2019): crosstalk between heaters; share and time are assumed.
    """

    def plant(bench: EmulatedBench) -> None:
        truth, heat = bench.world.truth, _LaggingHeat(bench, tau_s)

        def change(moment: Moment) -> None:
            missing_mw = share * (heat.at(moment.at_s) - moment.heat_mw)
            _add_phases(
                bench, truth.crosstalk.arm_rad_per_mw @ missing_mw, truth.crosstalk.joint_rad_per_mw @ missing_mw
            )

        while_read(lambda bench: change)(bench)

    return plant


def warm_arms_turn_more(per_mw: float = 0.015) -> Plant:
    """Crosstalk turns the phase of a hot arm more than that of a cold one.

    Cocorullo, Della Corte and Rendina, APL 74, 3338 (1999): dn/dT of silicon rises by some 0.13 % per kelvin. An
    undercut heater warms its arm by some 12 K per mW (assumed).
    """

    def start(bench: EmulatedBench) -> Callable[[Moment], None]:
        truth = bench.world.truth

        def change(moment: Moment) -> None:
            crosstalk_rad = truth.crosstalk.arm_rad_per_mw @ moment.heat_mw
            _add_phases(bench, per_mw * moment.heat_mw * crosstalk_rad)

        return change

    return while_read(start)


def warm_couplers(per_mw: float = 1.5e-4) -> Plant:
    """Couplers split differently when the heaters of their PUC are hot; the truth is that with both at π.

    Directional couplers: some 1e-4 to 5e-4 per kelvin; the warmth at the coupler, 1 K per mW, is assumed.
    """

    def start(bench: EmulatedBench) -> Callable[[Moment], None]:
        truth, rng = bench.world.truth, bench.rng("sealed couplers")
        slope = per_mw * (1.0 + 0.3 * rng.standard_normal((2, len(truth.eta_in))))

        def change(moment: Moment) -> None:
            warm_mw = moment.heat_mw.reshape(-1, 2).sum(axis=1) - 2.0 * _P_PI_MW
            truth.eta_in = truth.eta_in + slope[0] * warm_mw
            truth.eta_out = truth.eta_out + slope[1] * warm_mw

        return change

    return while_read(start)


# Waveguides -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _LossyCells(ChipCells):
    """Cells with couplers whose crossing field is not exactly a quarter turn behind the straight one."""

    excess_in_rad: Real
    excess_out_rad: Real

    def transfer(self) -> Complex:
        half_rad = 0.5 * self.differential_slope_per_hz * self.detuning_hz
        common_rad = 2.0 * np.pi * self.delay_s * self.detuning_hz
        upper = 10.0 ** (-self.loss_upper_db / 20.0) * np.exp(-1j * (self.phase_upper + common_rad + half_rad))
        lower = 10.0 ** (-self.loss_lower_db / 20.0) * np.exp(-1j * (self.phase_lower + common_rad - half_rad))
        first = _lossy_coupler(self.eta_in, self.excess_in_rad)
        last = _lossy_coupler(self.eta_out, self.excess_out_rad)
        arms = np.stack(np.broadcast_arrays(upper, lower), axis=-1)
        transfer: Complex = last @ (arms[..., None] * first)
        return transfer


def _lossy_coupler(eta: Real, excess_rad: Real) -> Complex:
    share = np.clip(eta, 0.0, 1.0)
    # Half of the excess in each field: the mean phase of a PUC, which counts in loops, stays that of its truth.
    across = -1j * np.sqrt(share) * np.exp(-0.5j * excess_rad)
    straight = np.sqrt(1.0 - share) * np.exp(0.5j * excess_rad)
    coupler: Complex = np.stack([straight, across, across, straight], axis=-1).reshape(*eta.shape, 2, 2)
    return coupler


def lossy_couplers(sigma_rad: float = 0.015) -> Plant:
    """The outputs of multimode couplers are not in quadrature, because they radiate; their loss is in the PUC's loss.

    Soldano and Pennings, JLT 13, 615 (1995): phase deviations of one or two degrees at small imbalance.
    """

    def plant(bench: EmulatedBench) -> None:
        chip, rng = bench.world.chip._chip, bench.rng("sealed quadrature")
        cells = chip.cells
        excess = sigma_rad * np.clip(rng.standard_normal((2, bench.world.mesh.n_pucs)), -2.0, 2.0)

        def lossy(*arguments: object) -> ChipCells:
            ideal = cells(*arguments)  # type: ignore[arg-type]
            values = {item.name: getattr(ideal, item.name) for item in fields(ChipCells)}
            return _LossyCells(**values, excess_in_rad=excess[0], excess_out_rad=excess[1])

        chip.cells = lossy  # type: ignore[assignment,method-assign]

    return plant


def crossed_access(leak_db: float = -40.0) -> Plant:
    """The waveguides to the photodiodes cross, and a little of each field joins that of the next port.

    Ma et al., Optics Express 21, 29374 (2013): crossings leak -37 dB or less.
    """

    def plant(bench: EmulatedBench) -> None:
        chip, n_ports = bench.world.chip._chip, bench.world.mesh.n_ports
        turn = np.exp(1j * bench.rng("sealed crossings").uniform(0.0, 2.0 * np.pi, n_ports - 1))
        amplitude = 10.0 ** (leak_db / 20.0)
        mix = np.eye(n_ports) + amplitude * (np.diag(turn, 1) - np.diag(turn.conj(), -1))
        te, both = chip.output_fields, chip.output_fields_with_tm

        def mixed_te(cells: ChipCells, ports: NDArray[np.int64]) -> Complex:
            return np.asarray(te(cells, ports) @ mix)

        def mixed(cells: ChipCells, ports: NDArray[np.int64]) -> tuple[Complex, Complex]:
            fields_te, fields_tm = both(cells, ports)
            return fields_te @ mix, fields_tm @ mix

        chip.output_fields, chip.output_fields_with_tm = mixed_te, mixed  # type: ignore[method-assign]

    return plant


# Heaters and their drive ----------------------------------------------------------------------------------------------


def neighbouring_channels(share: float = 5e-4) -> Plant:
    """Each drive channel adds a share of the currents of the channels before and after it.

    Direct-current crosstalk within multichannel converters and along ribbon cables; the size is assumed.
    """

    def change(bench: EmulatedBench, driven_ma: Real) -> Real:
        channels = np.array(bench.spec.heater_channels)
        wired = channels >= 0
        by_channel = np.zeros(channels.max() + 3)
        by_channel[channels[wired] + 1] = driven_ma[wired]
        added_ma = share * (by_channel[channels] + by_channel[channels + 2])
        return driven_ma + np.where(wired, added_ma, 0.0)

    return _carrying(change)


def compliance(limit_v: float = 2.8) -> Plant:
    """Current sources run short of voltage towards their limit: -1 % at 2.5 mA into 1 kΩ, -0.1 % at 2.2 mA.

    Horowitz and Hill, The Art of Electronics, 3rd edition (2015), chapter 2 (output compliance).
    """

    def change(bench: EmulatedBench, driven_ma: Real) -> Real:
        limit_ma = 1e3 * limit_v / bench.world.truth.heater_ohm
        return driven_ma * (1.0 + (driven_ma / limit_ma) ** 16) ** (-1.0 / 16.0)

    return _carrying(change)


def burning_in(share: float = 0.003) -> Plant:
    """The largest current that a heater has carried anneals it: its resistance rises for good, most near the maximum.

    New metal heaters change by tenths of a per cent when first driven (assumed).
    """

    def start(bench: EmulatedBench) -> Callable[[Real, float], Real]:
        truth = bench.world.truth
        fresh_ohm, largest_ma, driven_ma = truth.heater_ohm.copy(), 0.0 * truth.heater_ohm, 0.0 * truth.heater_ohm

        def act(currents_ma: Real, at_s: float) -> Real:
            np.maximum(largest_ma, driven_ma, out=largest_ma)
            driven_ma[:] = currents_ma
            truth.heater_ohm = fresh_ohm * (1.0 + share * (largest_ma / _MAX_MA) ** 4)
            return currents_ma

        return act

    return at_each_setting(start)


def pulsed_drive(ripple: float = 0.02) -> Plant:
    """Heaters are driven by pulse width, and their heat ripples by a share while the monitors average.

    Ribeiro et al., JSTQE 26, 6100708 (2020): pulsed drive in rows and columns; the ripple is that of 2 kHz and 100 µs
    behind a filter (assumed).
    """

    def plant(bench: EmulatedBench) -> None:
        truth, monitor_ma = bench.world.truth, bench.world.monitor_ma

        def planted(
            ports: NDArray[np.int64], responsivity_a_per_w: float, n_avg: int, at_s: float | None = None
        ) -> Real:
            steady_mw, readings = truth.p_pi_mw, list[Real]()
            for sign in (-1.0, 1.0):
                truth.p_pi_mw = steady_mw / (1.0 + sign * ripple)
                # Each half of the period has half of the scans.
                readings.append(monitor_ma(ports, responsivity_a_per_w, max(n_avg // 2, 1), at_s))
            truth.p_pi_mw = steady_mw
            mean: Real = np.mean(readings, axis=0)
            return mean

        bench.world.monitor_ma = planted  # type: ignore[method-assign]

    return plant


def loose_contacts(size: float = 0.004, share: float = 0.1, dwell_s: float = 3.0) -> Plant:
    """The contacts of some heaters jump between two resistances. True is the last state, as an ohmmeter would find it.

    Kirton and Uren, Advances in Physics 38, 367 (1989): random telegraph signals; the size is assumed.
    """

    def start(bench: EmulatedBench) -> Callable[[Real, float], Real]:
        truth, rng = bench.world.truth, bench.rng("sealed contacts")
        steady_mw, heaters = truth.p_pi_mw, len(truth.p_pi_mw)
        loose = rng.choice(heaters, math.ceil(share * heaters), replace=False)
        signals = [_telegraph(rng, dwell_s, bench.clock.now()) for _ in loose]

        def jump(currents_ma: Real, at_s: float) -> Real:
            factor = np.ones(heaters)
            factor[loose] += size * np.array([signal(at_s) for signal in signals])
            truth.p_pi_mw = steady_mw / factor
            return currents_ma

        return jump

    return at_each_setting(start)


# Photodiodes and their amplifiers -------------------------------------------------------------------------------------


def logarithmic_amplifiers(ripple_db: float = 0.03) -> Plant:
    """Monitors have logarithmic amplifiers, whose error waves with the logarithm of the current.

    Analog Devices AD8304 data sheet: log conformance within 0.1 dB.
    """

    def start(bench: EmulatedBench) -> Callable[[Real, float], Real]:
        phases = bench.rng("sealed amplifiers").uniform(0.0, 2.0 * np.pi, bench.world.mesh.n_ports)

        def read(current_ma: Real, at_s: float) -> Real:
            decades = np.log10(np.maximum(current_ma, 1e-9))
            wave = np.sin(4.0 * np.pi * decades + phases[: len(current_ma)])
            return np.asarray(current_ma * 10.0 ** (ripple_db * wave / 10.0))

        return read

    return _reading(start)


def remembering_inputs(share: float = 0.003, tau_s: float = 0.05) -> Plant:
    """Each input keeps a little of its last reading, by dielectric absorption in the hold capacitor.

    Pease, EDN (October 1982): 0.01 to 1 % in common capacitors.
    """

    def start(bench: EmulatedBench) -> Callable[[Real, float], Real]:
        last_ma, last_s = np.zeros(0), 0.0

        def read(current_ma: Real, at_s: float) -> Real:
            nonlocal last_ma, last_s
            kept_ma = last_ma if len(last_ma) == len(current_ma) else current_ma
            weight = share * math.exp(-max(at_s - last_s, 0.0) / tau_s)
            last_ma, last_s = current_ma, at_s
            return np.asarray(current_ma + weight * (kept_ma - current_ma))

        return read

    return _reading(start)


def mains_hum(amplitude_ma: float = 6e-5, hertz: float = 50.0) -> Plant:
    """Amplifiers pick up the mains, each with its own strength and phase; scans are much shorter than a period.

    Ott, Electromagnetic Compatibility Engineering (2009), chapter 3: ground loops; the size is assumed.
    """

    def start(bench: EmulatedBench) -> Callable[[Real, float], Real]:
        rng, ports = bench.rng("sealed hum"), bench.world.mesh.n_ports
        amplitudes, phases = amplitude_ma * rng.uniform(0.5, 1.5, ports), rng.uniform(0.0, 2.0 * np.pi, ports)

        def read(current_ma: Real, at_s: float) -> Real:
            n = len(current_ma)
            return np.asarray(current_ma + amplitudes[:n] * np.sin(2.0 * np.pi * hertz * at_s + phases[:n]))

        return read

    return _reading(start)


EFFECTS: dict[str, Plant] = {
    "sources that are off leak -30 dBm": leaking_sources(),
    "laser side mode of -30 dB": side_mode(),
    "lasers hop by 100 MHz": mode_hops(),
    "returned light pulls the lasers": feedback_pulling(),
    "patch cords sway in moved air": swaying_fibres(),
    "package warps with heat": warping_package(),
    "cooler cycles by 15 mK across the die": cycling_cooler(),
    "half of the crosstalk arrives late": late_crosstalk(),
    "crosstalk turns hot arms more": warm_arms_turn_more(),
    "couplers change with heat": warm_couplers(),
    "couplers are not in quadrature": lossy_couplers(),
    "access waveguides cross": crossed_access(),
    "drive channels leak into neighbours": neighbouring_channels(),
    "current sources run short of voltage": compliance(),
    "heaters burn in": burning_in(),
    "heaters are driven by pulse width": pulsed_drive(),
    "loose contacts": loose_contacts(),
    "logarithmic monitor amplifiers": logarithmic_amplifiers(),
    "monitor inputs remember": remembering_inputs(),
    "mains hum on the monitors": mains_hum(),
}
