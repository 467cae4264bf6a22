"""Locks of drivers, each proven needed: what takes several exchanges is not mixed with that of another thread."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import numpy as np

from lumion_hw.clock import SystemClock, VirtualClock
from lumion_hw.drivers.lasers.itla import ItlaLaser
from lumion_hw.drivers.lasers.scpi_laser import ScpiLaser
from lumion_hw.drivers.meters.keysight_n77xx import KeysightN77xx
from lumion_hw.emulator.lasers.itla.device import Itla
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.interfaces import LaserCapabilities, LaserSweep, SweepLog
from lumion_hw.links.memory import MemoryLink
from lumion_hw.sessions.codecs.itla import ItlaRegister
from tests.one_at_a_time import Interleaved, Yielding, YieldingLink


def test_a_meter_that_two_threads_close_is_given_back_to_its_panel() -> None:
    threads, clock = Interleaved(), SystemClock()
    device = EmulatedKeysightN77xx("meter", clock, np.random.default_rng(1), lambda port: 1e-3)
    link = YieldingLink(threads, MemoryLink(device.connect, clock, "emulated meter"))
    meter = KeysightN77xx(link, clock, device="meter")
    meter.open()
    assert not any(head.settings.continuous for head in device.heads.values())
    threads.run(meter.close, meter.close)
    assert all(head.settings.continuous for head in device.heads.values())


class Registers:
    """The registers of an ITLA, none of them pending."""

    device, address = "laser", "registers"

    def __init__(self) -> None:
        self.values: dict[int, int] = dict.fromkeys(ItlaRegister, 0)

    def read(self, register: int) -> int:
        return self.values[register]

    def write(self, register: int, value: int) -> None:
        self.values[register] = value

    def transaction(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def opened_itla(threads: Interleaved) -> ItlaLaser:
    """Return an open driver whose session is replaced by registers that yield."""
    clock = VirtualClock()
    itla = Itla("laser", clock, np.random.default_rng(1))
    laser = ItlaLaser(MemoryLink(itla.connect, clock, "emulated laser"), clock, device="laser")
    laser.open()
    laser._session = Yielding(threads, Registers())  # type: ignore[assignment]
    return laser


def test_a_power_is_read_back_before_another_is_set() -> None:
    threads = Interleaved()
    laser = opened_itla(threads)
    low, high = laser.ranges.power_dbm
    threads.run(*[partial(laser.set_power_dbm, each) for each in np.linspace(low, high, 4).round(1).tolist()])
    threads.assert_one_at_a_time()


def test_frequency_and_switching_of_an_itla_do_not_mix() -> None:
    threads = Interleaved()
    laser = opened_itla(threads)
    threads.run(partial(laser.set_frequency_thz, 193.4), laser.enable, partial(laser.set_power_dbm, 10.0))
    threads.assert_one_at_a_time()


class NotingLaser(ScpiLaser):
    """Sweeps in no time, and notes what it is asked to do once the sweep is under way: the session is free then."""

    makers, models = ("M",), ("L",)
    capabilities = LaserCapabilities(True, True, True, True)
    threads: Interleaved

    def prepare(self) -> Any: ...
    def read_wavelength_nm(self) -> Any: ...
    def write_wavelength_nm(self, wavelength_nm: float) -> None: ...
    def read_power_dbm(self) -> Any: ...
    def write_power_dbm(self, power_dbm: float) -> None: ...
    def switch(self, on: bool) -> None: ...

    def _check_open(self) -> None: ...

    def is_emitting(self) -> bool:
        return True

    def prepare_sweep(self, plan: LaserSweep) -> int:
        return 3

    def start_sweep(self) -> None: ...

    def is_sweeping(self) -> bool:
        self.threads.note("poll")
        return False

    def fetch_log(self, plan: LaserSweep, n_logged: int) -> SweepLog:
        self.threads.note("fetch")
        return SweepLog(np.array([plan.start_nm]), 0.0, 0.0)

    def end_sweep(self) -> None:
        self.threads.note("end")


def test_a_sweep_is_not_begun_before_the_log_of_the_last_one_is_fetched() -> None:
    threads, clock = Interleaved(), SystemClock()
    laser = NotingLaser(YieldingLink(threads), clock, device="laser")
    laser.threads, laser._limits_nm = threads, (1500.0, 1600.0)
    starts_nm = (1510.0, 1520.0, 1530.0)
    logs = threads.run(*[partial(laser.sweep, LaserSweep(nm, nm + 10.0, 1.0, 10.0, log=True)) for nm in starts_nm])
    threads.assert_one_at_a_time()
    assert [float(log.wavelength_nm[0]) for log in logs] == list(starts_nm)
