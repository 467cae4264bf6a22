"""Identity and thresholds of emulated QSFP modules, at the addresses and in the units of SFF-8636 and SFF-8024."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lumion_hw.emulator.transponders.qsfp import PROFILES, find_profile
from lumion_hw.errors import ConfigError
from tests.emulator.transponders.qsfp_testbench import Host, dbm

# Bytes 0, 1 and 128 to 147 of the memory, and 192; codes from SFF-8024 rev 4.11 and SFF-8636 rev 2.11.
IDENTITIES = {
    "100g-lr4": ("1108", "11cc07 8000000000000000 05ff00 0a00000000 4c", 0x03),
    "100g-cwdm4": ("1108", "11cc07 8000000000000000 05ff00 0200000000 40", 0x06),
    "100g-sr4": ("1108", "118c0c 8000000000000000 05ff00 0023000032 00", 0x02),
    "100g-psm4": ("1108", "11cc0c 8000000000000000 05ff00 0000000000 40", 0x07),
    "100g-aoc": ("1108", "118c23 8000000000000000 05ff00 000000000a 00", 0x01),
    "100g-cr4": ("1108", "110023 8800000000000000 05ff00 0000000003 a0", 0x0B),
    "40g-lr4": ("0d01", "0dc007 0200000000000000 056700 0a00000000 40", 0x00),
}


@pytest.mark.parametrize("name", PROFILES)
def test_the_codes_of_each_type_are_those_of_the_standards(name: str) -> None:
    host = Host(name)
    lower, upper, extended = IDENTITIES[name]
    assert host.read(0, 2).hex() == lower
    assert host.read(128, 20) == bytes.fromhex(upper)
    assert host.byte(192) == extended
    # 25.78125 GBd is above the range of byte 140: byte 222 has 103 times 250 MBd.
    assert host.byte(222) == (0 if name == "40g-lr4" else 103)


@pytest.mark.parametrize("name", PROFILES)
def test_both_checksums_are_the_low_bytes_of_their_sums(name: str) -> None:
    page = Host(name).read(128, 128)
    assert page[63] == sum(page[:63]) & 0xFF
    assert page[95] == sum(page[64:95]) & 0xFF


def test_names_are_text_padded_with_spaces() -> None:
    host = Host("100g-cwdm4", serial="S-77")
    assert host.read(148, 16) == b"LUMION EMU      "
    assert host.read(168, 16) == b"EMU-100G-CWDM4  "
    assert host.read(184, 2) == b"A0"
    assert host.read(196, 16) == b"S-77            "
    assert host.read(212, 8) == b"260101  "


def test_a_serial_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="17 characters"):
        Host(serial="S" * 17)


@pytest.mark.parametrize(
    ("name", "wavelength_nm", "tolerance_nm"),
    [("100g-lr4", 1302.35, 7.85), ("100g-cwdm4", 1301.0, 36.5), ("100g-sr4", 850.0, 10.0), ("40g-lr4", 1301.0, 36.5)],
)
def test_wavelengths_have_units_of_50_pm_and_tolerances_of_5_pm(
    name: str, wavelength_nm: float, tolerance_nm: float
) -> None:
    host = Host(name)
    assert host.word(186) * 0.05 == pytest.approx(wavelength_nm)
    assert host.word(188) * 0.005 == pytest.approx(tolerance_nm)


def test_a_copper_cable_has_its_attenuation_instead_of_a_wavelength() -> None:
    assert Host("100g-cr4").read(186, 4) == bytes((4, 6, 8, 11))


@pytest.mark.parametrize(
    ("name", "options", "diagnostics"),
    [
        # CDR controls and LOL flags, squelch and output controls; page 02h, Tx disable, fault and LOS; reset.
        ("100g-lr4", "00ff9a", "3c11"),
        ("100g-cwdm4", "00ff9e", "3c11"),  # squelch of the average power
        ("100g-aoc", "00ff9a", "3811"),  # no monitor of the launched power
        ("100g-cr4", "000000", "0000"),
        ("40g-lr4", "000f9a", "0800"),
    ],
)
def test_the_options_are_advertised(name: str, options: str, diagnostics: str) -> None:
    host = Host(name)
    assert host.read(193, 3).hex() == options
    assert host.read(220, 2).hex() == diagnostics


@pytest.mark.parametrize(
    ("power_class", "code", "max_power"),
    [(1, 0x00, 0), (2, 0x40, 0), (3, 0x80, 0), (4, 0xC0, 0), (5, 0xC1, 0), (6, 0xC2, 0), (7, 0xC3, 0), (8, 0x20, 60)],
)
def test_each_power_class_has_its_code(power_class: int, code: int, max_power: int) -> None:
    host = Host(replace(find_profile("100g-lr4"), power_class=power_class, max_power_w=6.0, has_cdr=False))
    assert host.byte(129) == code
    assert host.byte(107) == max_power


# Lowest and highest launched and received power of a lane in dBm: IEEE 802.3 Tables 87-7, 87-8, 88-7, 88-8, 95-6 and
# 95-7, the CWDM4 MSA and the PSM4 MSA.
LIMITS_DBM = {
    "100g-lr4": ((-4.3, 4.5), (-10.6, 4.5)),
    "100g-cwdm4": ((-6.5, 2.5), (-11.5, 2.5)),
    "100g-sr4": ((-8.4, 2.4), (-10.3, 2.4)),
    "100g-psm4": ((-9.4, 2.0), (-12.66, 2.0)),
    "40g-lr4": (None, (-13.7, 2.3)),
}


@pytest.mark.parametrize("name", LIMITS_DBM)
def test_warnings_are_at_the_optical_limits_of_the_standards(name: str) -> None:
    host = Host(name)
    launched, received = LIMITS_DBM[name]
    page = host.page(3)

    def thresholds(first: int) -> list[int]:
        return [int.from_bytes(page[first - 128 + 2 * i : first - 126 + 2 * i], "big") for i in range(4)]

    assert [dbm(raw) for raw in thresholds(176)[2:]] == pytest.approx(received[::-1], abs=0.01)
    if launched is None:
        assert thresholds(192) == [0] * 4
    else:
        assert [dbm(raw) for raw in thresholds(192)[2:]] == pytest.approx(launched[::-1], abs=0.01)
    # 75, -5, 70 and 0 degC in 1/256 degC; 3.63, 2.97, 3.465 and 3.135 V in 100 uV
    assert page[:8].hex() == "4b00fb0046000000"
    assert page[16:24].hex() == "8dcc7404875a7a76"


def test_biases_have_units_of_2_ua() -> None:
    page = Host("100g-lr4").page(3)
    assert page[184 - 128 : 192 - 128].hex() == "afc827109c403a98"  # 90, 20, 80 and 30 mA


def test_lane_wavelengths_are_those_of_their_grids() -> None:
    assert find_profile("100g-lr4").wavelengths_nm == (1295.56, 1300.05, 1304.58, 1309.14)
    assert (
        find_profile("100g-cwdm4").wavelengths_nm == find_profile("40g-lr4").wavelengths_nm == (1271, 1291, 1311, 1331)
    )
    assert find_profile("100g-cr4").wavelengths_nm == ()


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="100g-lr9") as caught:
        find_profile("100g-lr9")
    assert "100g-cwdm4" in str(caught.value)


def test_an_option_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        find_profile("100g-lr4").has("tx_disabled")
