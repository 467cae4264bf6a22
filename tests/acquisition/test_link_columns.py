"""Link performance of a coherent module in a log: its channels, its numbers, and a link that is down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from lumion_hw import Bench
from lumion_hw.acquisition.columns import Reader, State
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.emulator.transponders.cmis import CmisModule, ReceivedLight
from lumion_hw.interfaces import MeshController

SIGNAL = ReceivedLight(-8.0, -8.0, osnr_db=30.0)


class Lab:
    """A coherent module alone, with the light that arrives at it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.light = SIGNAL
        module = CmisModule.from_profile(
            "400zr", clock=self.clock, seed=1, optics=lambda lane, at_s: self.light, emit=lambda light: None, warm=True
        )
        self.module = CmisTransponder(module, self.clock, device="zr")
        self.module.open()
        controller = cast("MeshController", SimpleNamespace(info=SimpleNamespace(n_monitors=0)))
        none: dict[str, object] = {}
        self.bench = cast(
            "Bench",
            SimpleNamespace(
                transponders={"zr": self.module},
                mesh=SimpleNamespace(controller=controller),
                model=SimpleNamespace(mesh=SimpleNamespace(controller="mesh0")),
                **dict.fromkeys(("meters", "lasers", "polarization", "polarimeters"), none),
                **dict.fromkeys(("attenuators", "switches", "amplifiers", "temperature_controllers"), none),
            ),
        )

    def bring_up(self) -> None:
        self.module.power_up()
        self.module.enable()
        assert self.module.wait_for_lock(30.0).locked
        self.module.performance()  # the interval in which the link came up
        self.clock.sleep(5.0)


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_every_quantity_that_a_module_measures_is_a_channel_with_its_unit(lab: Lab) -> None:
    units = {column.name: column.unit for column in Reader(lab.bench).columns}
    wanted = {"zr.prefec_ber": "1", "zr.osnr_db": "dB", "zr.cd_ps_per_nm": "ps/nm", "zr.laser_temperature_c": "°C"}
    assert {name: units[name] for name in wanted} == wanted
    lab.bring_up()
    measured = lab.module.performance().quantities.keys() - {"tx_power"}  # that one is among the monitors
    assert len(measured) == len(units) - 5


def test_a_link_that_is_up_gives_numbers(lab: Lab) -> None:
    lab.bring_up()
    found = Reader(lab.bench, ["zr.prefec_ber", "zr.osnr_db"]).read()
    assert [value.state for value in found] == [State.OK] * 2
    assert 1e-4 < found[0].number < 1.25e-2
    assert found[1].number == pytest.approx(30.0, abs=0.5)


def test_a_link_that_is_down_gives_no_number_and_is_no_failure(lab: Lab) -> None:
    lab.bring_up()
    lab.light = ReceivedLight()
    lab.clock.sleep(5.0)
    reader = Reader(lab.bench, ["zr.prefec_ber", "zr.q_db", "zr.rx_signal_power_dbm"])
    reader.read()  # the interval in which the light went out
    lab.clock.sleep(5.0)
    found = {column.name: value.state for column, value in zip(reader.columns, reader.read(), strict=True)}
    assert found == {
        "zr.prefec_ber": State.NO_SIGNAL,
        "zr.q_db": State.NO_SIGNAL,
        "zr.rx_signal_power_dbm": State.DARK,
    }
    assert not reader.failures


def test_an_interval_is_ended_only_for_who_asks_for_it(lab: Lab) -> None:
    lab.bring_up()
    before = lab.module.performance().interval
    Reader(lab.bench, ["zr.temperature_c"]).read()
    assert lab.module.performance().interval == before + 1
