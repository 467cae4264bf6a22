"""Direct-detection modules and an active cable: the driver brings each of them up, and reports what each one has.

Interface codes are those of SFF-8024 tables 4-5, 4-7 and 4-9, wavelengths those of IEEE 802.3 table 151-1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import pytest

from lumion_hw.bench.kinds.cmis import CmisModel
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.cmis_decoder import decode_image
from lumion_hw.drivers.transponders.decoded import Severity
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.emulator.transponders.cmis import CmisModule, Fibre, LaunchedLight, join
from lumion_hw.emulator.transponders.cmis.light import CmisLight
from lumion_hw.errors import NotSupportedError
from lumion_hw.interfaces import LockStage, Quality
from lumion_hw.quantities import frequency_hz_from_wavelength_m

CODES: dict[str, list[tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]]]] = {
    "400g-fr4": [(0x11, 0x1D, 8, 4, (1,), (1,))],
    "2x400g-fr4": [(0x50, 0x1D, 4, 4, (1, 5), (1, 5))],
    "800g-dr8": [
        (0x52, 0x56, 8, 8, (1,), (1,)),
        (0x50, 0x1C, 4, 4, (1, 5), (1, 5)),
        (0x4C, 0x14, 1, 1, tuple(range(1, 9)), tuple(range(1, 9))),
    ],
    "400g-lpo-dr4": [(0x74, 0x91, 4, 4, (1,), (1,)), (0x74, 0x8F, 1, 1, (1, 2, 3, 4), (1, 2, 3, 4))],
    "aec": [(0x11, 0x03, 8, 8, (1,), (1,)), (0x0D, 0x03, 2, 2, (1, 3, 5, 7), (1, 3, 5, 7))],
}
NAMES = {
    "400g-fr4": ("400GAUI-8 C2M", "400GBASE-FR4"),
    "2x400g-fr4": ("400GAUI-4-L C2M", "400GBASE-FR4"),
    "800g-dr8": ("800GAUI-8-L C2M", "800GBASE-DR8"),
    "400g-lpo-dr4": ("CEI-112G-LINEAR-PAM4", "400G-DR4-LPO"),
    "aec": ("400GAUI-8 C2M", "active cable, BER < 2.6e-4"),
}
OPTICAL = [name for name in CODES if name != "aec"]
PATHS = {(name, number): item for name, rows in CODES.items() for number, item in enumerate(rows, 1)}


class Link:
    """Two modules of a type, joined by fibres, and the driver of the first."""

    def __init__(self, clock: VirtualClock, profile: str) -> None:
        self.clock = clock
        self.near = CmisModule.from_profile(profile, clock=clock, seed=1, warm=True, low_power_pin=False)
        self.far = CmisModule.from_profile(profile, clock=clock, seed=2, warm=True, low_power_pin=False)
        self.there, self.back = join(self.near, self.far, Fibre(loss_db=2.0))
        self.driver = CmisTransponder(self.near, clock, device=profile)
        self.driver.open()
        self.driver.power_up()


@pytest.fixture
def link(request: pytest.FixtureRequest, clock: VirtualClock) -> Iterator[Link]:
    link = Link(clock, request.param)
    yield link
    link.driver.close()


@pytest.mark.parametrize("link", CODES, indirect=True)
def test_each_advertises_its_applications(link: Link) -> None:
    found = link.driver.capabilities()
    profile = link.near.name
    assert [
        (
            item.host_id,
            item.media_id,
            item.host_lanes,
            item.media_lanes,
            item.first_host_lanes,
            item.first_media_lanes,
        )
        for item in found.applications
    ] == CODES[profile]
    assert (found.applications[0].host_interface, found.applications[0].media_interface) == NAMES[profile]
    assert not found.coherent
    assert not found.tunable


@pytest.mark.parametrize(("link", "number"), PATHS, indirect=["link"])
def test_each_application_comes_up(link: Link, number: int) -> None:
    _, _, host_lanes, media_lanes, host_starts, media_starts = PATHS[link.near.name, number]
    for first in host_starts:
        link.driver.select_application(number, first)
    link.driver.enable()
    used = {lane for first in host_starts for lane in range(first, first + host_lanes)}
    states = link.driver.data_path_states()
    assert {states[lane] for lane in used} == {"activated"}
    assert [path.media_lanes[0] for path in link.driver.data_paths()] == list(media_starts)
    assert all(len(path.media_lanes) == media_lanes for path in link.driver.data_paths())
    link.near.advance()
    assert all(link.near.light(lane).enabled for first in media_starts for lane in range(first, first + media_lanes))
    link.driver.disable()
    assert not any(link.near.light(lane).enabled for lane in range(1, len(media_starts) * media_lanes + 1))


@pytest.mark.parametrize("link", CODES, indirect=True)
def test_each_finds_its_link(link: Link) -> None:
    link.driver.enable()
    assert link.driver.wait_for_lock(30.0).stage is LockStage.LOCKED
    link.back.cut = True
    link.clock.sleep(1.0)
    report = link.driver.wait_for_lock(0.0)
    assert report.stage is LockStage.RX_LOS


@pytest.mark.parametrize("link", OPTICAL, indirect=True)
def test_optical_modules_measure_every_lane(link: Link) -> None:
    link.driver.enable()
    link.driver.wait_for_lock(30.0)
    lanes = {lane for path in link.driver.data_paths() for lane in path.media_lanes}
    assert len(lanes) == (8 if link.near.name in ("2x400g-fr4", "800g-dr8") else 4)
    for lane in lanes:
        readings = link.driver.lane_readings(lane)
        assert readings["tx_power"].value == pytest.approx(1.0, abs=0.3)
        assert readings["rx_power"].value == pytest.approx(-1.0, abs=0.7)
        assert readings["tx_bias"].value == pytest.approx(70.0, abs=1.0)


@pytest.mark.parametrize(
    ("link", "total_db"), [("400g-fr4", 6.0), ("2x400g-fr4", 6.0), ("800g-dr8", 0.0)], indirect=["link"]
)
def test_the_monitors_show_all_light_of_a_fibre(link: Link, total_db: float) -> None:
    link.driver.enable()
    link.driver.wait_for_lock(30.0)
    found = link.driver.monitors()
    assert found.tx_power_dbm == pytest.approx(1.0 + total_db, abs=0.3)
    assert found.rx_power_dbm == pytest.approx(-1.0 + total_db, abs=0.7)
    assert found.tx_bias_ma == pytest.approx(70.0 * (4 if total_db else 1), rel=0.02)
    link.back.cut = True
    link.clock.sleep(1.0)
    assert link.driver.monitors().rx_power_dbm is None


@pytest.mark.parametrize("link", ["aec"], indirect=True)
def test_a_cable_measures_temperature_and_supply_only(link: Link) -> None:
    link.driver.enable()
    link.driver.wait_for_lock(30.0)
    found = link.driver.monitors()
    assert found.temperature_c == pytest.approx(45.0, abs=12.0)  # it still warms up
    assert found.supply_v == pytest.approx(3.3, abs=0.02)
    assert (found.tx_power_dbm, found.rx_power_dbm, found.tx_bias_ma) == (None, None, None)
    assert {item.quality for item in link.driver.lane_readings(1).values()} == {Quality.NOT_SUPPORTED}
    assert link.driver.capabilities().monitors == ("temperature", "supply")
    assert not link.driver.status().rx_los


@pytest.mark.parametrize("link", ["aec"], indirect=True)
def test_a_cable_without_a_signal_does_not_speak_of_light(link: Link) -> None:
    link.back.cut = True
    link.driver.enable()
    report = link.driver.wait_for_lock(5.0)
    assert (report.stage, report.detail) == (LockStage.RX_LOS, "no signal at media lane 1")


@pytest.mark.parametrize("link", ["400g-lpo-dr4"], indirect=True)
def test_a_linear_module_has_no_retimer_and_knows_no_errors(link: Link) -> None:
    memory = link.driver.dump()
    assert memory.half(0x01) is not None
    assert [memory.half(0x01)[byte - 128] & 1 for byte in (161, 162)] == [0, 0]  # type: ignore[index]  # no CDR
    link.driver.enable()
    assert link.driver.capabilities().performance == {}
    with pytest.raises(NotSupportedError):
        link.driver.performance()


def test_lanes_of_fr4_share_a_fibre_at_four_wavelengths(clock: VirtualClock) -> None:
    module = CmisModule.from_profile("2x400g-fr4", clock=clock, warm=True)
    found_nm = [299_792_458e3 / module.light(lane).frequency_mhz for lane in range(1, 9)]
    assert found_nm == pytest.approx([1271.0, 1291.0, 1311.0, 1331.0] * 2)
    status = bytes.fromhex(module.image()["pages"]["11"])  # type: ignore[index]
    assert status[240 - 128 : 248 - 128] == bytes([0x11, 0x21, 0x31, 0x41, 0x12, 0x22, 0x32, 0x42])


@pytest.mark.parametrize("link", CODES, indirect=True)
def test_the_decoder_finds_no_contradiction(link: Link) -> None:
    link.driver.enable()
    found = decode_image(link.driver.dump()).findings
    assert [item for item in found if item.severity is not Severity.NOTE] == []


@pytest.mark.parametrize(
    ("profile", "launch_dbm", "range_dbm", "band_nm"),
    [
        ("400g-fr4", 7.02, (-1.28, 9.52), (1264.5, 1337.5)),
        ("2x400g-fr4", 7.02, (-1.28, 9.52), (1264.5, 1337.5)),
        ("800g-dr8", 1.0, (-5.9, 4.0), (1304.5, 1317.5)),
        ("400g-lpo-dr4", 1.0, (-5.9, 4.0), (1304.5, 1317.5)),
    ],
)
def test_circuits_are_planned_with_all_light_of_a_fibre(
    profile: str, launch_dbm: float, range_dbm: tuple[float, float], band_nm: tuple[float, float]
) -> None:
    optics = CmisModel.model_validate({"kind": "cmis", "profile": profile}).optics
    assert optics is not None
    assert optics.launch_dbm == pytest.approx(launch_dbm, abs=0.01)
    assert (optics.sensitivity_dbm, optics.overload_dbm) == pytest.approx(range_dbm, abs=0.01)
    assert optics.receives_nm == band_nm


class World:
    """An optical model of one fibre that loses half of the light."""

    def __init__(self) -> None:
        self.lines: dict[str, list[Light]] = {}

    def set_lines(self, source: str, lines: list[Light]) -> None:
        self.lines[source] = lines

    def received_lines_w(self, transponder: str) -> dict[tuple[str, float], float]:
        assert transponder == "b"
        return {
            (source, frequency_hz_from_wavelength_m(line.wavelength_nm * 1e-9)): line.power_w / 2.0
            for source, lines in self.lines.items()
            for line in lines
            if line.power_w
        }


def test_lanes_of_a_fibre_are_multiplexed_and_separated_again() -> None:
    world = World()
    light = CmisLight(cast(OpticalWorld, world))
    wavelengths_nm = (1271.0, 1291.0, 1311.0, 1331.0)
    emit, receive = light.emit_multiplexed("a", wavelengths_nm), light.optics_demultiplexed("b", wavelengths_nm)
    assert receive(1, 0.0).signal_power_dbm == -math.inf
    for lane, power_dbm in enumerate((0.0, 3.0, 0.0, 0.0, 10.0), 1):
        emit(LaunchedLight(lane, 0.0, lane != 3, power_dbm, 2e8 + lane, media_interface=0x1D))
    launched = {line.wavelength_nm: line.power_w for line in world.lines["a"]}
    assert launched == pytest.approx({1271.0: 1e-3, 1291.0: 1.995e-3, 1311.0: 0.0, 1331.0: 1e-3}, rel=1e-3)
    assert [receive(lane, 0.0).signal_power_dbm for lane in (1, 2, 4)] == pytest.approx([-3.01, -0.01, -3.01], abs=0.01)
    assert [receive(lane, 0.0).frequency_mhz for lane in (1, 2, 4)] == [2e8 + 1, 2e8 + 2, 2e8 + 4]
    assert [receive(lane, 0.0).total_power_dbm for lane in (3, 5)] == [-math.inf] * 2


def test_a_cable_has_no_optics_to_plan_with() -> None:
    model = CmisModel.model_validate({"kind": "cmis", "profile": "aec"})
    assert (model.optics, model.nominal_nm) == (None, None)
