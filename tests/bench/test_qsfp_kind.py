"""Kind ``qsfp-8636``: planning data of each profile, and values that contradict each other."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lumion_hw.bench.file.known_kinds import kind_named
from lumion_hw.bench.file.module_optics import ModuleOptics
from lumion_hw.bench.file.roles import Role
from lumion_hw.bench.kinds.qsfp_8636 import KIND, QsfpModel
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
from lumion_hw.errors import LimitError
from tests.drivers.transponders.qsfp_memories import Module, sealed

# Lowest and highest average received power, shortest and longest wavelength of all lanes: IEEE 802.3 Tables 88-7 and
# 88-8, 95-6 and 95-7, 87-7 and 87-8; CWDM4 MSA 1.1; PSM4 MSA 2.0. Rate of a lane in Gb/s.
LIMITS = {
    "100g-lr4": (-10.6, 4.5, 1294.53, 1310.19, 25.78125),
    "100g-cwdm4": (-11.5, 2.5, 1264.5, 1337.5, 25.78125),
    "100g-sr4": (-10.3, 2.4, 840.0, 860.0, 25.78125),
    "100g-psm4": (-12.66, 2.0, 1295.0, 1325.0, 25.78125),
    "40g-lr4": (-13.7, 2.3, 1264.5, 1337.5, 10.3125),
}
# Lowest and highest average launch power of a lane, from the same tables.
LAUNCH = {
    "100g-lr4": (-4.3, 4.5),
    "100g-cwdm4": (-6.5, 2.5),
    "100g-sr4": (-8.4, 2.4),
    "100g-psm4": (-9.4, 2.0),
    "40g-lr4": (-7.0, 2.3),
}


def model(**keys: object) -> QsfpModel:
    return QsfpModel.model_validate({"kind": "qsfp-8636", **keys})


def optics(profile: str, **keys: object) -> ModuleOptics:
    found = model(profile=profile, **keys).lane_optics
    assert found is not None
    return found


def test_the_kind_is_registered_as_a_transponder() -> None:
    assert kind_named("qsfp-8636") is KIND
    assert (KIND.role, KIND.module_connections) == (Role.TRANSPONDER, True)


@pytest.mark.parametrize("profile", LIMITS)
def test_a_profile_has_the_limits_of_its_standard(profile: str) -> None:
    found = optics(profile)
    low, high = found.receives_nm
    levels = (found.sensitivity_dbm, found.overload_dbm, low, high, found.formats[0].rate_gbps)
    assert levels == LIMITS[profile]
    assert low <= found.emits_nm <= high
    assert LAUNCH[profile][0] <= found.launch_dbm <= LAUNCH[profile][1]


@pytest.mark.parametrize("profile", ["100g-aoc", "100g-cr4"])
def test_cables_have_no_fibres_to_plan_with(profile: str) -> None:
    assert model(profile=profile).lane_optics is None


def test_keys_override_the_profile() -> None:
    found = optics(
        "100g-lr4",
        tx_power_dbm=2.0,
        sensitivity_dbm=-9.0,
        overload_dbm=3.0,
        wavelength_nm=1305.0,
        receives_nm=[1290.0, 1315.0],
    )
    assert (found.launch_dbm, found.sensitivity_dbm, found.overload_dbm) == (2.0, -9.0, 3.0)
    assert (found.emits_nm, found.receives_nm) == (1305.0, (1290.0, 1315.0))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"max_power_class": 9}, "max_power_class"),
        ({"max_power_class": 0}, "max_power_class"),
        ({"profile": "100g-lr"}, "profile"),
        ({"sensitivity_dbm": 5.0}, "expected sensitivity_dbm below overload_dbm, found 5 and 4.5"),
        ({"receives_nm": [1310.0, 1290.0]}, r"expected receives_nm as \[shortest, longest\]"),
        ({"pins": {"reset_l": 4}, "address": "i2c://1"}, "expected an adapter with pins"),
        ({"pins": {"reset_l": 4, "int_l": 4}}, "expected a different pin for every signal"),
    ],
)
def test_wrong_values_are_refused(keys: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        model(**keys)


def test_the_power_class_of_the_cage_reaches_the_driver(clock: VirtualClock) -> None:
    module = Module(clock)
    module.pages[0x00][1] = 0xCE  # class 6
    module.pages[0x00] = sealed(bytes(module.pages[0x00]))
    for limit, allowed in ((4, False), (6, True)):
        driver = QsfpTransponder(module, clock, max_power_class=model(max_power_class=limit).max_power_class)
        driver.open()
        if allowed:
            driver.power_up()
        else:
            with pytest.raises(LimitError):
                driver.power_up()
