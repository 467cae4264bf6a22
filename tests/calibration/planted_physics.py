"""Physics that neither the emulated chip nor the calibration knows, planted in a bench behind their backs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.assembly import EmulatedBench

Real = NDArray[np.float64]
Plant = Callable[[EmulatedBench], None]


def none() -> Plant:
    """No effect."""
    return lambda bench: None


@dataclass(frozen=True)
class Moment:
    """Instant of a reading, and the heaters at that instant.

    Attributes:
        at_s: Time on the bench's clock.
        driven_ma: Shape ``(2E,)`` for E PUCs; heater currents that the controller drives.
        heat_mw: Shape ``(2E,)``; steady-state heat.
    """

    at_s: float
    driven_ma: Real
    heat_mw: Real


def while_read(start: Callable[[EmulatedBench], Callable[[Moment], None]]) -> Plant:
    """Return a plant that changes the chip's parameters and the sources' light during each reading only.

    ``start`` returns a function that replaces attributes of ``world.truth``, or the frequencies and polarizations in
    ``world.chains``. They are restored after the reading, so that errors refer to the unchanged chip.
    """

    def plant(bench: EmulatedBench) -> None:
        world, truth, chains = bench.world, bench.world.truth, bench.world.chains
        change, monitor_ma, driven_ma = start(bench), world.monitor_ma, np.zeros(len(truth.p_pi_mw))

        def note(currents_ma: Real, at_s: float) -> Real:
            driven_ma[:] = currents_ma
            return currents_ma

        def planted(
            ports: NDArray[np.int64], responsivity_a_per_w: float, n_avg: int, at_s: float | None = None
        ) -> Real:
            unchanged, light = dict(vars(truth)), [(chain.frequency_hz, chain.launch) for chain in chains]
            now_s = bench.clock.now() if at_s is None else at_s
            change(Moment(now_s, driven_ma.copy(), truth.heater_power_mw(driven_ma)))
            try:
                return monitor_ma(ports, responsivity_a_per_w, n_avg, at_s)
            finally:
                vars(truth).update(unchanged)
                for chain, (frequency_hz, launch) in zip(chains, light, strict=True):
                    chain.frequency_hz, chain.launch = frequency_hz, launch

        at_each_setting(lambda bench: note)(bench)
        world.monitor_ma = planted  # type: ignore[method-assign]

    return plant


def at_each_setting(start: Callable[[EmulatedBench], Callable[[Real, float], Real]]) -> Plant:
    """Return a plant that acts whenever the heater currents are set.

    ``start`` returns a function of currents (mA) and time (s) that returns the currents to drive instead.
    """

    def plant(bench: EmulatedBench) -> None:
        act, drive_heaters = start(bench), bench.world.drive_heaters
        bench.world.drive_heaters = lambda currents_ma, at_s: drive_heaters(  # type: ignore[method-assign]
            act(currents_ma, at_s), at_s
        )

    return plant


def backwards() -> Plant:
    """The photodiode at the last port reads less the more light there is."""

    def read(current: Real, ports: NDArray[np.int64]) -> Real:
        return np.asarray(np.where(ports == ports.max(), np.maximum(0.05 - current, 0.0), current))

    return _read_as(read)


def gain_by_another(share_per_ma: float) -> Plant:
    """Responsivity of each photodiode rises with the light at the one half the chip away: no row of the table."""

    def read(current: Real, ports: NDArray[np.int64]) -> Real:
        return np.asarray(current * (1.0 + share_per_ma * np.roll(current, len(current) // 2)))

    return _read_as(read)


def fibres_exchanged(one: int, other: int) -> Plant:
    """The fibres of two ports' monitors are exchanged."""

    def read(current: Real, ports: NDArray[np.int64]) -> Real:
        where = {int(port): index for index, port in enumerate(ports)}
        swapped = current.copy()
        if one in where and other in where:
            swapped[[where[one], where[other]]] = current[[where[other], where[one]]]
        return swapped

    return _read_as(read)


def _read_as(read: Callable[[Real, NDArray[np.int64]], Real]) -> Plant:
    def plant(bench: EmulatedBench) -> None:
        world = bench.world
        monitor_ma = world.monitor_ma

        def planted(ports: NDArray[np.int64], *rest: float | None) -> Real:
            return np.maximum(read(monitor_ma(ports, *rest), ports), 0.0)  # type: ignore[arg-type]

        world.monitor_ma = planted  # type: ignore[assignment,method-assign]

    return plant


def warmed_sibling(share: float) -> Plant:
    """Each heater warms the other arm of its PUC by a share of its own phase."""

    def plant(bench: EmulatedBench) -> None:
        truth = bench.world.truth
        heaters = np.arange(len(truth.p_pi_mw))
        truth.crosstalk.arm_rad_per_mw[heaters ^ 1, heaters] += share * np.pi / truth.p_pi_mw

    return plant


def one_sided_crosstalk(share: float) -> Plant:
    """Crosstalk to the right is stronger by a share, and to the left weaker."""

    def plant(bench: EmulatedBench) -> None:
        truth = bench.world.truth
        x = np.repeat(bench.world.mesh.corners.reshape(-1, 4, 2).mean(axis=1)[:, 0], 2)
        truth.crosstalk.arm_rad_per_mw[:] *= 1.0 + share * np.sign(x[:, None] - x[None, :])

    return plant


def sagging_supply(share: float, half_load_ma: float | None = None) -> Plant:
    """All currents fall by a share at half load, with the cube of the total current; by default 1 mA per heater."""

    def plant(bench: EmulatedBench) -> None:
        heaters = bench.world.truth.variations.heaters
        carried_ma = heaters.carried_ma
        half_ma = half_load_ma or float(len(bench.world.truth.p_pi_mw))

        def sagging(currents_ma: Real) -> Real:
            return carried_ma(currents_ma * (1.0 - share * (currents_ma.sum() / half_ma) ** 3))

        object.__setattr__(heaters, "carried_ma", sagging)

    return plant


def range_step(share: float, above_ma: float = 0.02) -> Plant:
    """The amplifier of each monitor has another gain above a current."""

    def read(current: Real, ports: NDArray[np.int64]) -> Real:
        return np.asarray(np.where(current > above_ma, current * (1.0 + share), current))

    return _read_as(read)


def ageing_heaters(share: float, heat_s: float = 20.0) -> Plant:
    """The phase per power of each heater falls by a share in the given time at the power for π, and stays there."""

    def start(bench: EmulatedBench) -> Callable[[Real, float], Real]:
        truth = bench.world.truth
        fresh_mw, driven_ma, since_s = truth.p_pi_mw.copy(), np.zeros(len(truth.p_pi_mw)), bench.clock.now()
        aged_s = np.zeros(len(fresh_mw))

        def act(currents_ma: Real, at_s: float) -> Real:
            nonlocal driven_ma, since_s
            aged_s[:] += truth.heater_power_mw(driven_ma) / fresh_mw * max(at_s - since_s, 0.0)
            truth.p_pi_mw = fresh_mw / (1.0 - share * aged_s / heat_s)
            driven_ma, since_s = currents_ma.copy(), at_s
            return currents_ma

        return act

    return at_each_setting(start)


def glitches(share: float) -> Plant:
    """In a share of the settings, one random heater gets a random current for the time of the setting."""

    def start(bench: EmulatedBench) -> Callable[[Real, float], Real]:
        rng = bench.rng("planted glitches")

        def act(currents_ma: Real, at_s: float) -> Real:
            wrong_ma = currents_ma.copy()
            if rng.random() < share:
                wrong_ma[rng.integers(len(wrong_ma))] = rng.uniform(0.0, currents_ma.max())
            return wrong_ma

        return act

    return at_each_setting(start)


def warming_laser(power_share: float, shift_hz: float, tau_s: float = 3.0) -> Plant:
    """Power and frequency of each source start too high when the source is switched on, and settle exponentially."""

    def start(bench: EmulatedBench) -> Callable[[Moment], None]:
        world, on_since_s = bench.world, dict[str, float]()
        set_transmitter = world.set_transmitter

        def switched(source: str, power_w: float) -> None:
            if power_w > 0.0:
                on_since_s.setdefault(source, bench.clock.now())
            else:
                on_since_s.pop(source, None)
            set_transmitter(source, power_w)

        def unsettled(source: str, now_s: float) -> float:
            """Return the share that is still to settle; 0 for a source that was on from the beginning."""
            return math.exp((on_since_s.get(source, -math.inf) - now_s) / tau_s)

        def power_db(source: str) -> Callable[[float], float]:
            return lambda now_s: 10.0 * math.log10(1.0 + power_share * unsettled(source, now_s))

        world.set_transmitter = switched  # type: ignore[method-assign]
        for path in world.wiring.inputs:
            world.disturbances.power_db[path.port] = power_db(path.source)

        def change(moment: Moment) -> None:
            for path, chain in zip(world.wiring.inputs, world.chains, strict=True):
                chain.frequency_hz += shift_hz * unsettled(path.source, moment.at_s)

        return change

    return while_read(start)
