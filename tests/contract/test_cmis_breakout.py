"""Several data paths and several media lanes of one module: each is switched, proven and reported on its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.emulator.transponders.cmis import CmisModule, ReceivedLight
from lumion_hw.emulator.transponders.cmis.optics import LaunchedLight
from lumion_hw.errors import ConfigError, DeviceError, DeviceTimeoutError, VerifyError
from lumion_hw.interfaces import LockStage

FIRST_LANES = (1, 3, 5, 7)
"""Host lanes on which the four 100G paths of a 400G-DR4 begin; path k goes with media lane k."""
BRIGHT = ReceivedLight(-3.0, -3.0)


class Bus:
    """A module on its bus, whose monitor of launched power can be held at a raw value, lane by lane."""

    name = "bus"

    def __init__(self, module: CmisModule) -> None:
        self._module = module
        self._page = 0
        self.held: dict[int, int] = {}

    def write(self, offset: int, data: bytes) -> None:
        if offset <= 127 < offset + len(data):
            self._page = data[127 - offset]
        self._module.write(offset, data)

    def read(self, offset: int, length: int) -> bytes:
        data = bytearray(self._module.read(offset, length))
        for lane, count in self.held.items() if self._page == 0x11 else ():
            for byte, value in enumerate(count.to_bytes(2, "big"), start=154 + 2 * (lane - 1)):
                if offset <= byte < offset + length:
                    data[byte - offset] = value
        return bytes(data)


class Bench:
    """A module with what it launches and receives, and its driver."""

    def __init__(self, clock: VirtualClock, profile: str = "400g-dr4", lane: int | None = None) -> None:
        self.clock = clock
        self.received = dict.fromkeys(range(1, 9), BRIGHT)
        self.sent: list[LaunchedLight] = []
        self.module = CmisModule.from_profile(
            profile, clock=clock, seed=1, optics=lambda lane, _: self.received[lane], emit=self.sent.append
        )
        clock.sleep(1.0)
        self.bus = Bus(self.module)
        self.driver = CmisTransponder(self.bus, clock, device="dr4", lane=lane)
        self.driver.open()
        self.driver.power_up()

    def lit(self) -> list[int]:
        """Media lanes that really launch light."""
        self.module.advance()
        return [lane for lane in range(1, 5) if self.module.light(lane).enabled]

    def break_out(self) -> None:
        for first in FIRST_LANES:
            self.driver.select_application(2, first)


@pytest.fixture
def dr4(clock: VirtualClock) -> Iterator[Bench]:
    bench = Bench(clock)
    yield bench
    bench.driver.close()


@pytest.fixture
def muxponder(clock: VirtualClock) -> Iterator[Bench]:
    """Four 100G clients of a 400ZR: application 2 from host lanes 1, 3, 5, 7, all on media lane 1."""
    bench = Bench(clock, "400zr")
    bench.received = dict.fromkeys(range(1, 9), ReceivedLight(-8.0, -8.0, osnr_db=36.0))
    for first in FIRST_LANES:
        bench.driver.select_application(2, first)
    yield bench
    bench.driver.close()


# -- dark is dark on every lane


@pytest.mark.parametrize("lane", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("count", "dbm"),
    [
        pytest.param(12_000, "0.79", id="1.2 mW"),
        pytest.param(10_000, "0.00", id="1 mW, exactly 0 dBm"),
        pytest.param(11, "-29.59", id="1.1 uW, the first count above -30 dBm"),
    ],
)
def test_disable_fails_while_any_media_lane_is_lit(dr4: Bench, lane: int, count: int, dbm: str) -> None:
    dr4.driver.enable()
    dr4.bus.held[lane] = count
    with pytest.raises(VerifyError, match=f"media lane {lane} is not dark.*{dbm} dBm"):
        dr4.driver.disable()


def test_disable_accepts_lanes_that_are_at_their_limit(dr4: Bench) -> None:
    dr4.driver.enable()
    dr4.bus.held = {1: 10, 3: 0}  # 1 uW is -30 dBm, and 0 is below the range
    dr4.driver.disable()
    assert dr4.lit() == []


def test_disable_looks_at_lanes_that_no_path_uses(dr4: Bench) -> None:
    dr4.driver.select_application(2, 5)
    dr4.driver.enable()
    dr4.bus.held[1] = 10_000
    with pytest.raises(VerifyError, match="media lane 1 is not dark"):
        dr4.driver.disable()


# -- light on every lane


@pytest.mark.parametrize("lane", [1, 2, 3, 4])
def test_enable_fails_while_any_media_lane_of_the_path_is_dark(dr4: Bench, lane: int) -> None:
    dr4.bus.held[lane] = 0
    with pytest.raises(DeviceTimeoutError, match=f"media lane {lane} emits no light"):
        dr4.driver.enable()


def test_enable_names_all_dark_lanes(dr4: Bench) -> None:
    dr4.break_out()
    dr4.bus.held = {2: 0, 4: 0}
    with pytest.raises(DeviceTimeoutError, match="media lanes 2, 4 emit no light"):
        dr4.driver.enable()


def test_a_launch_of_0_dbm_is_light(dr4: Bench) -> None:
    dr4.bus.held = dict.fromkeys(range(1, 5), 10_000)
    dr4.driver.enable()
    assert dr4.driver.monitors().tx_power_dbm == 0.0


# -- one driver, four paths


@pytest.mark.parametrize(("lane", "first"), [*enumerate(FIRST_LANES, start=1)])
def test_a_path_is_selected_enabled_proven_and_locked_alone(dr4: Bench, lane: int, first: int) -> None:
    path = dr4.driver.path(first)
    path.select_application(2)
    path.enable()
    assert dr4.lit() == [lane]
    assert not path.status().tx_disabled
    assert path.wait_for_lock(5.0).locked
    assert path.monitors().tx_power_dbm == pytest.approx(1.0, abs=0.3)
    path.disable()
    assert dr4.lit() == []
    assert path.status().tx_disabled


def test_a_path_that_is_not_on_lane_1_can_be_enabled_by_the_module(dr4: Bench) -> None:
    dr4.driver.select_application(2, 5)
    dr4.driver.enable()
    assert dr4.lit() == [3]
    assert not dr4.driver.status().tx_disabled
    assert dr4.driver.monitors().tx_power_dbm == pytest.approx(1.0, abs=0.3)
    assert dr4.driver.wait_for_lock(5.0).locked
    assert dr4.driver.settings().enabled


def test_the_module_enables_all_its_paths_and_they_go_dark_one_by_one(dr4: Bench) -> None:
    dr4.break_out()
    dr4.driver.enable()
    assert dr4.lit() == [1, 2, 3, 4]
    for left, first in zip(([1, 2, 4], [1, 4], [1], []), (5, 3, 7, 1), strict=True):
        before = len(dr4.sent)
        dr4.driver.path(first).disable()
        assert dr4.lit() == left
        assert {light.media_lane for light in dr4.sent[before:]} == {FIRST_LANES.index(first) + 1}
        assert [dr4.driver.path(other).status().tx_disabled for other in FIRST_LANES] == [
            lane not in left for lane in (1, 2, 3, 4)
        ]
        assert dr4.driver.status().tx_disabled is (not left)


def test_enabling_a_path_leaves_the_light_of_others_alone(dr4: Bench) -> None:
    dr4.break_out()
    dr4.driver.path(1).enable()
    before = len(dr4.sent)
    dr4.driver.path(7).enable()
    assert [(light.media_lane, light.enabled) for light in dr4.sent[before:]] == [(4, True)]


def test_selecting_one_path_leaves_the_light_of_others_alone(dr4: Bench) -> None:
    dr4.break_out()
    dr4.driver.enable()
    before = len(dr4.sent)
    dr4.driver.path(3).select_application(2)
    assert [(light.media_lane, light.enabled) for light in dr4.sent[before:]] == [(2, False)]


def test_disabling_a_path_proves_its_own_lanes_only(dr4: Bench) -> None:
    dr4.break_out()
    dr4.driver.enable()
    dr4.bus.held[2] = 10_000
    dr4.driver.path(5).disable()
    with pytest.raises(VerifyError, match="media lane 2 is not dark"):
        dr4.driver.path(3).disable()


def test_each_path_has_its_own_lock(dr4: Bench) -> None:
    dr4.break_out()
    dr4.driver.enable()
    dr4.received[3] = ReceivedLight()
    dr4.clock.sleep(2.0)
    assert [dr4.driver.path(first).lock_state().stage for first in FIRST_LANES] == [
        LockStage.LOCKED,
        LockStage.LOCKED,
        LockStage.RX_LOS,
        LockStage.LOCKED,
    ]
    assert [dr4.driver.path(first).status().rx_los for first in FIRST_LANES] == [False, False, True, False]
    whole = dr4.driver.lock_state()
    assert (whole.stage, whole.lane) == (LockStage.RX_LOS, 3)
    assert dr4.driver.status().rx_los


def test_each_path_reads_its_own_lanes(dr4: Bench) -> None:
    dr4.break_out()
    dr4.bus.held = {1: 12_589, 2: 7943, 3: 10_000, 4: 15_849}  # 1, -1, 0, 2 dBm
    dr4.driver.enable()
    powers = [dr4.driver.path(first).monitors().tx_power_dbm for first in FIRST_LANES]
    assert powers == pytest.approx([1.0, -1.0, 0.0, 2.0], abs=1e-3)
    performance = dr4.driver.path(5).performance().quantities
    best = performance["prefec_ber"].best
    assert best is not None
    assert best.source.startswith("24h:")
    assert "prefec_ber.1" not in performance, "a path reports its own lanes only"


def test_settings_and_capabilities_of_a_path(dr4: Bench) -> None:
    dr4.break_out()
    dr4.driver.path(3).enable()
    assert dr4.driver.path(3).settings().enabled
    assert not dr4.driver.path(1).settings().enabled
    assert dict(dr4.driver.path(3).settings().applications) == {3: 2}
    assert dict(dr4.driver.settings().applications) == dict.fromkeys(FIRST_LANES, 2)
    assert dr4.driver.path(3).capabilities().applications == dr4.driver.capabilities().applications


def test_flags_of_a_path_are_those_of_its_lanes(dr4: Bench) -> None:
    dr4.break_out()
    dr4.driver.enable()
    dr4.received[3] = ReceivedLight()
    dr4.clock.sleep(1.0)
    assert "rx_los" in {flag.name for flag in dr4.driver.path(5).flags()}
    assert "rx_los" not in {flag.name for flag in dr4.driver.path(1).flags()}
    assert ("rx_los", 3) in {(flag.name, flag.lane) for flag in dr4.driver.flags()}
    dr4.received[3] = BRIGHT
    dr4.clock.sleep(1.0)
    dr4.driver.path(1).clear_flags()
    dr4.driver.flags()
    assert "rx_los" in {flag.name for flag in dr4.driver.path(5).flags()}
    dr4.driver.path(5).clear_flags()
    assert "rx_los" not in {flag.name for flag in dr4.driver.path(5).flags()}


def test_a_lane_that_is_switched_off_elsewhere_is_one_of_a_lit_path(dr4: Bench) -> None:
    dr4.driver.enable()
    dr4.module.write(126, b"\x00\x10")
    dr4.module.write(130, b"\x02")
    dr4.clock.sleep(1.0)
    assert dr4.lit() == [1, 3, 4]
    assert not dr4.driver.status().tx_disabled, "three of its lanes launch light"
    assert dr4.driver.lock_state().stage is LockStage.TX_DISABLED
    dr4.driver.disable()
    assert dr4.driver.status().tx_disabled
    assert dr4.lit() == []


def test_a_path_that_is_stuck_does_not_hold_the_others_up(dr4: Bench) -> None:
    dr4.break_out()
    dr4.driver.path(1).enable()
    dr4.module.faults.inject("stuck_init")
    with pytest.raises(DeviceTimeoutError, match="dp_init: host lane 3"):
        dr4.driver.path(3).enable()
    dr4.driver.path(1).disable()
    dr4.driver.path(1).enable()
    assert dr4.lit() == [1]


# -- leaving the block


def test_leaving_the_block_switches_off_what_was_switched_on_in_it(dr4: Bench) -> None:
    dr4.break_out()
    dr4.driver.path(1).enable()
    dr4.driver.path(3).enable()
    with CmisTransponder(dr4.bus, dr4.clock, device="dr4") as driver:
        driver.path(5).enable()
        driver.path(3).disable()
        driver.path(3).enable()
        assert dr4.lit() == [1, 2, 3]
    assert dr4.lit() == [1]


# -- refusals


def test_a_path_without_an_application_is_refused_by_its_lane(dr4: Bench) -> None:
    dr4.driver.select_application(2, 1)
    with pytest.raises(DeviceError, match="no application is selected from host lane 3"):
        dr4.driver.path(3).enable()
    dr4.driver.path(3).disable()  # nothing is on there
    assert dr4.driver.path(3).status().tx_disabled
    assert dr4.driver.path(3).lock_state().stage is LockStage.DP_INIT


@pytest.mark.parametrize("first", [0, 2, 9])
def test_there_is_no_path_where_no_application_begins(dr4: Bench, first: int) -> None:
    with pytest.raises(ConfigError, match=rf"no data path can begin on host lane {first}.*1, 3, 5, 7"):
        dr4.driver.path(first)


def test_a_path_selects_at_its_own_lane_only(dr4: Bench) -> None:
    with pytest.raises(ConfigError, match="host lane 5"):
        dr4.driver.path(3).select_application(2, 5)
    with pytest.raises(ConfigError, match="does not offer application 1 from host lane 3"):
        dr4.driver.path(3).select_application(1)


# -- clients of one carrier


def test_clients_of_one_carrier_come_up_one_by_one(muxponder: Bench) -> None:
    muxponder.driver.path(1).enable()
    before = len(muxponder.sent)
    muxponder.driver.path(5).enable()
    assert muxponder.sent[before:] == [], "the carrier is on already, and stays"
    assert [muxponder.driver.path(first).lock_state().stage for first in FIRST_LANES][::2] == [LockStage.LOCKED] * 2
    muxponder.driver.path(3).select_application(2)
    assert muxponder.sent[before:] == [], "a client is configured beside one that runs"


def test_a_client_alone_on_its_carrier_is_switched_off(muxponder: Bench) -> None:
    muxponder.driver.path(1).enable()
    muxponder.driver.path(1).disable()
    assert not muxponder.module.light(1).enabled


def test_a_carrier_that_others_use_is_not_switched_off_with_one_client(muxponder: Bench) -> None:
    muxponder.driver.path(1).enable()
    muxponder.driver.path(5).enable()
    with pytest.raises(DeviceError, match="media lane 1 also carries the data path from host lane 5"):
        muxponder.driver.path(1).disable()
    assert muxponder.module.light(1).enabled
    muxponder.driver.disable()
    assert not muxponder.module.light(1).enabled


# -- a driver of one media lane, as a bench file names it


def test_a_driver_of_a_media_lane_serves_the_path_on_it(clock: VirtualClock) -> None:
    bench = Bench(clock, lane=3)
    bench.driver.select_application(2)
    assert dict(bench.driver.settings().applications) == {5: 2}
    bench.driver.enable()
    assert bench.lit() == [3]
    bench.received = dict.fromkeys(range(1, 9), ReceivedLight()) | {3: BRIGHT}
    assert bench.driver.wait_for_lock(5.0).locked
    bench.driver.disable()
    assert bench.lit() == []
