"""Signal integrity of an emulated module: staged control set 0 with ExplicitControl (CMIS 5.2 pages 10h and 11h)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from lumion_hw import VirtualClock
from lumion_hw.drivers import CmisTransponder, SignalIntegrity
from lumion_hw.emulator import CmisModule
from lumion_hw.emulator.transponders.cmis.profiles import ModuleQuirks, find_profile
from lumion_hw.errors import ConfigError, ConfigRejectedError, LimitError, NotSupportedError
from lumion_hw.standards.cmis import Value

LEVELS = SignalIntegrity(rx_amplitude=2, rx_pre_cursor=1, rx_post_cursor=0)


def emulated(clock: VirtualClock, quirks: ModuleQuirks | None = None, **registers: Value) -> CmisModule:
    profile = find_profile("400g-dr4")
    profile = dataclasses.replace(profile, registers=profile.registers | registers)
    return CmisModule(profile, clock, np.random.default_rng(1), quirks=quirks, low_power_pin=False, warm=True)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(100.0)


@pytest.fixture
def module(clock: VirtualClock) -> Iterator[CmisTransponder]:
    """A module with four active data paths of two host lanes."""
    with CmisTransponder(emulated(clock), clock) as driver:
        for first in (1, 3, 5, 7):
            driver.select_application(2, first)
        driver.enable()
        yield driver


def active(module: CmisTransponder) -> bytes:
    return module.dump().halves[0, 0x11][206 - 128 : 235 - 128]


def test_output_levels_of_one_data_path_in_operation(module: CmisTransponder) -> None:
    before = active(module)
    module.path(3).set_signal_integrity(LEVELS)
    assert set(module.data_path_states().values()) == {"activated"}
    after = active(module)
    assert after[0:8] == bytes([0x20, 0x20, 0x25, 0x25, 0x28, 0x28, 0x2C, 0x2C])  # bit 0: ExplicitControl
    assert after[223 - 206 : 227 - 206] == bytes([0x00, 0x11, 0, 0])  # pre-cursor of lanes 3 and 4
    assert after[231 - 206 : 235 - 206] == bytes([0x11, 0x22, 0x11, 0x11])  # amplitude
    assert module.path(3).signal_integrity()[4].tx_adaptive_eq is True  # kept
    module.path(3).use_default_signal_integrity()
    assert active(module) == before


def test_a_lane_keeps_its_settings_while_another_of_its_path_changes(module: CmisTransponder) -> None:
    module.set_signal_integrity(SignalIntegrity(tx_adaptive_eq=False, tx_fixed_eq=3), lanes=(1,))
    module.set_signal_integrity(LEVELS, lanes=(2, 7))
    settings = module.signal_integrity()
    assert (settings[1].tx_fixed_eq, settings[1].rx_amplitude, settings[1].is_custom) == (3, 1, True)
    assert (settings[2].tx_adaptive_eq, settings[2].rx_amplitude, settings[2].is_custom) == (True, 2, True)
    assert [lane for lane, item in settings.items() if item.is_custom] == [1, 2, 7]


def test_a_module_that_is_reconfigured_in_steps(clock: VirtualClock) -> None:
    """Its data path must be deactivated (00h:2.6), and sends light again afterwards."""
    with CmisTransponder(emulated(clock, ModuleQuirks(stepped_config_only=True)), clock) as driver:
        driver.select_application(1)
        driver.enable()
        driver.set_signal_integrity(LEVELS)
        assert driver.signal_integrity()[8].rx_amplitude == 2
        assert set(driver.data_path_states().values()) == {"activated"}
        assert not driver.status().tx_disabled


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        (SignalIntegrity(tx_adaptive_eq=False, tx_fixed_eq=9), LimitError, "Tx equalization"),
        (SignalIntegrity(rx_amplitude=3), LimitError, "offers 0, 1, 2"),
        (SignalIntegrity(rx_pre_cursor=4), LimitError, "Rx pre-cursor"),
        (SignalIntegrity(tx_fixed_eq=3), ConfigError, "adaptive equalization is on"),
        (SignalIntegrity(rx_cdr=False), NotSupportedError, "Rx clock recovery"),  # no bypass: 01h:162.1
        (SignalIntegrity(), ConfigError, "no signal-integrity setting"),
    ],
)
def test_refused_without_a_change(
    module: CmisTransponder, settings: SignalIntegrity, error: type[Exception], text: str
) -> None:
    before = module.dump().halves
    with pytest.raises(error, match=text):
        module.set_signal_integrity(settings)
    assert module.dump().halves[0, 0x10] == before[0, 0x10]
    assert active(module) == before[0, 0x11][206 - 128 : 235 - 128]


def test_a_lane_without_a_data_path(clock: VirtualClock) -> None:
    with CmisTransponder(emulated(clock), clock) as driver:
        driver.select_application(2, 1)
        with pytest.raises(ConfigError, match="host lane 3 is in a data path"):
            driver.set_signal_integrity(LEVELS, lanes=(1, 3))


class Overstated(CmisModule):
    """A module whose 01h:154.3-0 advertises a larger pre-cursor than it accepts."""

    def read(self, offset: int, length: int) -> bytes:
        data = bytearray(super().read(offset, length))
        if self.log[-1].page == 1 and offset <= 154 < offset + length:
            data[154 - offset] |= 0x0F
        return bytes(data)


def test_the_module_refuses_what_it_advertises(clock: VirtualClock) -> None:
    """ConfigStatus 5, RejectedInvalidSI: the former settings stay in use."""
    link = Overstated(find_profile("400g-dr4"), clock, np.random.default_rng(1), low_power_pin=False, warm=True)
    with CmisTransponder(link, clock) as driver:
        driver.select_application(1)
        before = active(driver)
        with pytest.raises(ConfigRejectedError, match="rejected_invalid_si") as caught:
            driver.set_signal_integrity(SignalIntegrity(rx_pre_cursor=4))
        assert (caught.value.lane, caught.value.code) == (1, 5)
        assert active(driver) == before


def test_clock_recovery_with_bypass(clock: VirtualClock) -> None:
    link = emulated(clock, tx_cdr_bypass_supported=1, rx_cdr_bypass_supported=1)
    with CmisTransponder(link, clock) as driver:
        driver.select_application(1)
        assert driver.signal_integrity()[1].rx_cdr is True
        driver.set_signal_integrity(SignalIntegrity(rx_cdr=False), lanes=(1, 2))
        assert driver.dump().halves[0, 0x11][221 - 128 : 223 - 128] == bytes([0xFF, 0xFC])
