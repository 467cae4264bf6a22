"""Types of emulated QSFP+ and QSFP28 modules.

Codes: SFF-8024 rev 4.11. Optical limits: IEEE 802.3 clauses 87 (40GBASE-LR4), 88 (100GBASE-LR4) and 95 (100GBASE-SR4),
the 100G CWDM4 MSA (rev 1.1) and the 100G PSM4 MSA (rev 2.0). Warnings lie at the limits of these documents, alarms 1 dB
beyond. Times: below the limits of SFF-8679 (2 s for initialisation, 300 ms to leave low power, 100 ms and 400 ms for Tx
disable). Biases, LOS levels and attenuations are typical figures of products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from lumion_hw.emulator.transponders.qsfp.offsets import OPTION_BITS
from lumion_hw.errors import ConfigError

Thresholds = tuple[float, float, float, float]
"""High alarm, low alarm, high warning, low warning."""

QSFP_PLUS, QSFP28 = 0x0D, 0x11
"""Identifier codes (SFF-8024 Table 4-1)."""
REVISION_8436, REVISION_8636 = 0x01, 0x08
"""Revision codes: SFF-8436 rev 4.8 or earlier, and SFF-8636 rev 2.8 or later (Table 6-3)."""
LC, MPO, NO_CONNECTOR = 0x07, 0x0C, 0x23
"""Connector codes (SFF-8024 Table 4-3): LC, MPO 1x12, and a cable that cannot be separated."""

_POWER_CLASS_CODES = {1: 0x00, 2: 0x40, 3: 0x80, 4: 0xC0, 5: 0xC1, 6: 0xC2, 7: 0xC3, 8: 0x20}
_TX_CDR, _RX_CDR = 0x08, 0x04


@dataclass(frozen=True)
class QsfpProfile:
    """Properties of one type of module.

    Attributes:
        identifier: Identifier code.
        revision: Code of the revision of the standard.
        connector: Connector code.
        ethernet_code: Ethernet compliance, page 00h byte 131.
        extended_code: Extended compliance, page 00h byte 192.
        technology: Device technology, page 00h byte 147.
        encoding: Encoding code, page 00h byte 139.
        rate_mbaud: Signalling rate of a lane in MBd.
        part_number: Part number, at most 16 characters.
        power_class: Power class 1 to 8.
        max_power_w: Largest power consumption in W.
        wavelengths_nm: Wavelength of each lane; empty without optics.
        nominal_nm: Nominal wavelength in the memory; 0 without optics.
        tolerance_nm: Largest difference to the nominal wavelength.
        attenuations_db: Attenuation of a copper cable at 2.5, 5, 7 and 12.9 GHz; empty for optics.
        lengths: Page 00h bytes 142 to 146: SMF in km, OM3 in 2 m, OM2 and OM1 in m, cable in m or OM4 in 2 m.
        launch_dbm: Launched power of a lane.
        bias_ma: Laser bias of a lane while it emits.
        los_assert_dbm: Received power below which Rx LOS is asserted.
        los_release_dbm: Received power above which Rx LOS is released.
        thresholds: Thresholds by monitor, in degC, V, mA (``tx_bias``) and dBm (powers).
        options: Advertised options, names in ``offsets.OPTION_BITS``.
        is_flat: Whether the module has only the lower memory and page 00h.
        has_monitors: Whether the module has monitors.
        has_cdr: Whether the module has clock recovery in both directions.
        waits_for_high_power: Whether a module of class 5 to 8 stays dark until the host enables its class in byte 93.
        temperature_c: Case temperature.
        supply_v: Supply voltage.
        temperature_offset_c: Largest fixed error of the temperature monitor (standard: 3 degC).
        supply_offset: Largest relative error of the supply monitor (standard: 0.03).
        bias_offset: Largest relative error of the bias monitors (standard: 0.1).
        power_offset_db: Largest fixed error of the power monitors (standard: 3 dB).
        power_noise_db: RMS noise of the power monitors.
        bus_ready_s: Time from power-up or reset until the bus responds.
        data_ready_s: Time from power-up or reset until the monitors are valid.
        init_s: Time from power-up or reset until the module is fully functional.
        leave_low_power_s: Time to leave low-power mode.
        enter_low_power_s: Time from a software request to low-power mode.
        pin_low_power_s: Time from the LPMode pin to low-power mode.
        tx_off_s: Time from a Tx disable bit to darkness.
        tx_on_s: Time from the end of Tx disable to light.
        squelch_s: Time from a change of the host's signal to the squelch of the laser.
        los_s: Time from a loss of light to its flag.
        fault_s: Time from a failure to its flag.
        refresh_s: Update period of the monitors.
        register_write_s: Time after a write of a volatile register, other than page select, without acknowledgement.
        eeprom_write_s: Time after a write of non-volatile memory without acknowledgement.
    """

    name: str
    identifier: int
    revision: int
    connector: int
    ethernet_code: int
    extended_code: int
    technology: int
    part_number: str
    power_class: int
    encoding: int = 0x05
    rate_mbaud: float = 25_781.25
    max_power_w: float = 3.5
    wavelengths_nm: tuple[float, ...] = ()
    nominal_nm: float = 0.0
    tolerance_nm: float = 0.0
    attenuations_db: tuple[int, ...] = ()
    lengths: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    launch_dbm: float = 0.0
    bias_ma: float = 40.0
    los_assert_dbm: float = -16.0
    los_release_dbm: float = -14.5
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)
    options: frozenset[str] = frozenset()
    is_flat: bool = False
    has_monitors: bool = True
    has_cdr: bool = True
    waits_for_high_power: bool = True
    temperature_c: float = 45.0
    supply_v: float = 3.30
    temperature_offset_c: float = 1.5
    supply_offset: float = 0.01
    bias_offset: float = 0.05
    power_offset_db: float = 1.0
    power_noise_db: float = 0.05
    bus_ready_s: float = 0.3
    data_ready_s: float = 1.0
    init_s: float = 1.8
    leave_low_power_s: float = 0.25
    enter_low_power_s: float = 0.08
    pin_low_power_s: float = 100e-6
    tx_off_s: float = 0.08
    tx_on_s: float = 0.35
    squelch_s: float = 0.35
    los_s: float = 0.08
    fault_s: float = 0.15
    refresh_s: float = 0.05
    register_write_s: float = 0.001
    eeprom_write_s: float = 0.040

    @property
    def extended_identifier(self) -> int:
        """Page 00h byte 129 (Table 6-16)."""
        return _POWER_CLASS_CODES[self.power_class] | ((_TX_CDR | _RX_CDR) if self.has_cdr else 0)

    def has(self, option: str) -> bool:
        """Return whether the module has an option."""
        if option not in OPTION_BITS:
            raise KeyError(option)
        return option in self.options


def _limits(low: float, high: float) -> Thresholds:
    return (high + 1.0, low - 1.0, high, low)


def _thresholds(
    bias_ma: tuple[float, float, float, float], tx_dbm: tuple[float, float], rx_dbm: tuple[float, float]
) -> Mapping[str, Thresholds]:
    """Return the thresholds for given biases and the range of launched and received power (lowest, highest)."""
    return MappingProxyType(
        {
            "temperature": (75.0, -5.0, 70.0, 0.0),
            "supply": (3.63, 2.97, 3.465, 3.135),
            "rx_power": _limits(*rx_dbm),
            "tx_bias": bias_ma,
            "tx_power": _limits(*tx_dbm),
        }
    )


_OPTICAL = frozenset(
    (
        *("rx_squelch_disable", "rx_output_disable", "tx_squelch_disable", "tx_squelch", "page_02h"),
        *("tx_disable", "tx_fault", "tx_los", "rx_average_power"),
    )
)
_QSFP28 = _OPTICAL | {
    *("tx_cdr_control", "rx_cdr_control", "tx_cdr_lol", "rx_cdr_lol", "temperature_monitor", "supply_monitor"),
    *("tx_power_monitor", "init_complete_flag", "software_reset"),
}

_LR4 = QsfpProfile(
    "100g-lr4",
    identifier=QSFP28,
    revision=REVISION_8636,
    connector=LC,
    ethernet_code=0x80,
    extended_code=0x03,
    technology=0x4C,  # 1310 nm DFB, cooled, with wavelength control
    part_number="EMU-100G-LR4",
    power_class=4,
    wavelengths_nm=(1295.56, 1300.05, 1304.58, 1309.14),
    nominal_nm=1302.35,
    tolerance_nm=7.85,
    lengths=(10, 0, 0, 0, 0),
    launch_dbm=1.0,
    bias_ma=55.0,
    los_assert_dbm=-16.0,
    los_release_dbm=-14.5,
    thresholds=_thresholds((90.0, 20.0, 80.0, 30.0), (-4.3, 4.5), (-10.6, 4.5)),
    options=_QSFP28,
)
_CWDM_NM = (1271.0, 1291.0, 1311.0, 1331.0)
_SR4_BIAS_MA = (12.0, 2.0, 10.0, 3.0)

PROFILES: Mapping[str, QsfpProfile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            _LR4,
            replace(
                _LR4,
                name="100g-cwdm4",
                extended_code=0x06,
                technology=0x40,
                part_number="EMU-100G-CWDM4",
                wavelengths_nm=_CWDM_NM,
                nominal_nm=1301.0,
                tolerance_nm=36.5,
                lengths=(2, 0, 0, 0, 0),
                launch_dbm=0.0,
                bias_ma=40.0,
                los_assert_dbm=-17.0,
                los_release_dbm=-15.5,
                thresholds=_thresholds((80.0, 15.0, 70.0, 20.0), (-6.5, 2.5), (-11.5, 2.5)),
                options=_QSFP28 | {"tx_squelch_of_average_power"},
            ),
            replace(
                _LR4,
                name="100g-sr4",
                connector=MPO,
                extended_code=0x02,
                technology=0x00,
                part_number="EMU-100G-SR4",
                power_class=3,
                max_power_w=2.5,
                wavelengths_nm=(850.0,) * 4,
                nominal_nm=850.0,
                tolerance_nm=10.0,
                lengths=(0, 35, 0, 0, 50),  # 70 m of OM3, 100 m of OM4
                launch_dbm=-1.0,
                bias_ma=7.0,
                los_assert_dbm=-15.0,
                los_release_dbm=-13.5,
                thresholds=_thresholds(_SR4_BIAS_MA, (-8.4, 2.4), (-10.3, 2.4)),
            ),
            replace(
                _LR4,
                name="100g-psm4",
                connector=MPO,
                extended_code=0x07,
                technology=0x40,
                part_number="EMU-100G-PSM4",
                wavelengths_nm=(1310.0,) * 4,
                nominal_nm=1310.0,
                tolerance_nm=15.0,
                lengths=(0, 0, 0, 0, 0),  # 500 m: less than the unit of 1 km
                launch_dbm=-1.0,
                bias_ma=45.0,
                los_assert_dbm=-18.0,
                los_release_dbm=-16.5,
                thresholds=_thresholds((90.0, 20.0, 80.0, 25.0), (-9.4, 2.0), (-12.66, 2.0)),
            ),
            replace(
                _LR4,
                name="100g-aoc",
                connector=NO_CONNECTOR,
                extended_code=0x01,
                technology=0x00,
                part_number="EMU-100G-AOC10",
                power_class=3,
                max_power_w=2.5,
                wavelengths_nm=(850.0,) * 4,
                nominal_nm=850.0,
                tolerance_nm=10.0,
                lengths=(0, 0, 0, 0, 10),
                launch_dbm=-1.0,
                bias_ma=7.0,
                los_assert_dbm=-15.0,
                los_release_dbm=-13.5,
                thresholds=_thresholds(_SR4_BIAS_MA, (-8.4, 2.4), (-10.3, 2.4)),
                options=_QSFP28 - {"tx_power_monitor"},
            ),
            QsfpProfile(
                "100g-cr4",
                identifier=QSFP28,
                revision=REVISION_8636,
                connector=NO_CONNECTOR,
                ethernet_code=0x88,
                extended_code=0x0B,
                technology=0xA0,  # copper, not equalised
                part_number="EMU-100G-CR4-3M",
                power_class=1,
                max_power_w=0.1,
                attenuations_db=(4, 6, 8, 11),
                lengths=(0, 0, 0, 0, 3),
                is_flat=True,
                has_monitors=False,
                has_cdr=False,
                bus_ready_s=0.1,
                data_ready_s=0.0,
                init_s=0.1,
            ),
            QsfpProfile(
                "40g-lr4",
                identifier=QSFP_PLUS,
                revision=REVISION_8436,
                connector=LC,
                ethernet_code=0x02,
                extended_code=0x00,
                technology=0x40,
                part_number="EMU-40G-LR4",
                power_class=4,
                rate_mbaud=10_312.5,
                wavelengths_nm=_CWDM_NM,
                nominal_nm=1301.0,
                tolerance_nm=36.5,
                lengths=(10, 0, 0, 0, 0),
                launch_dbm=-1.0,
                bias_ma=35.0,
                los_assert_dbm=-19.0,
                los_release_dbm=-17.5,
                thresholds=_thresholds((75.0, 10.0, 70.0, 15.0), (-7.0, 2.3), (-13.7, 2.3)),
                options=_OPTICAL,
                has_cdr=False,
            ),
        )
    }
)
"""Profiles by name."""


def find_profile(name: str) -> QsfpProfile:
    """Return the profile with a given name. Raises ``ConfigError`` if there is none."""
    if name not in PROFILES:
        raise ConfigError(f"unknown type of QSFP module {name!r}", hint=f"Types: {', '.join(PROFILES)}.")
    return PROFILES[name]
