"""The module types that can be emulated, as data.

Register values of the coherent types are those of docs/transponders-emulated.md; launch and receive powers of 400GBASE-
DR4 are after IEEE 802.3 clause 124 (from memory, to be verified). Vendor names and serial numbers are invented.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lumion_hw.emulator.transponders.cmis.profile import (
    EVERY_STATE,
    AdvertisedApplication,
    CdbProfile,
    Limits,
    LineFormat,
    ModuleLaserProfile,
    ModuleProfile,
    ReceiverProfile,
    Timing,
    VdmInstance,
)
from lumion_hw.emulator.transponders.sfp import SfpModule
from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis import Value
from lumion_hw.standards.cmis.codes import Grid
from lumion_hw.standards.cmis.grids import FineRange
from lumion_hw.standards.cmis.vdm import OBSERVABLES_BY_NAME

SFP_PROFILES: Mapping[str, type[SfpModule]] = MappingProxyType({"10gbase-er": SfpModule})
"""Profiles that are not CMIS modules, and the class that emulates them."""

_CFEC = LineFormat(8, 59.84, 1.25e-2)
_OFEC_400 = LineFormat(8, 60.14, 2.0e-2)
_OFEC_200 = LineFormat(4, 60.14, 2.0e-2)
_OFEC_100 = LineFormat(4, 30.07, 2.0e-2)
_KP4_LANE = LineFormat(2, 53.125, 2.4e-4)

_COMMON: Mapping[str, Value] = {
    "identifier": 0x18,
    "identifier_copy": 0x18,
    "cmis_revision": 0x52,
    "media_type": 2,
    "vendor_name": "LUMION EMU",
    "vendor_oui": bytes(3),
    "vendor_revision": "A0",
    "date_code": "260101",
    "clei_code": "",
    "firmware_major": 1,
    "firmware_minor": 4,
    "inactive_firmware_major": 1,
    "inactive_firmware_minor": 3,
    "hardware_major": 1,
    "hardware_minor": 0,
    "modsel_wait_mantissa": 1,
    "modsel_wait_exponent": 4,
    "cooled": 1,
    "module_temperature_max": 75,
    "module_temperature_min": 0,
    "min_supply": 3.14,
    "rx_power_is_average": 1,
    "rx_los_is_average": 1,
    "tx_input_eq_max": 8,
    "rx_output_levels": 0b0111,
    "rx_pre_cursor_max": 3,
    "rx_post_cursor_max": 5,
    "tx_squelch_method": 2,
    "tx_forced_squelch_supported": 1,
    "tx_auto_squelch_disable_supported": 1,
    "tx_disable_supported": 1,
    "rx_auto_squelch_disable_supported": 1,
    "rx_output_disable_supported": 1,
    "tx_lol_flag_supported": 1,
    "tx_los_flag_supported": 1,
    "tx_failure_flag_supported": 1,
    "rx_lol_flag_supported": 1,
    "rx_los_flag_supported": 1,
    "temperature_monitor_supported": 1,
    "supply_monitor_supported": 1,
    "tx_power_monitor_supported": 1,
    "tx_bias_monitor_supported": 1,
    "rx_power_monitor_supported": 1,
    "tx_adaptive_eq_supported": 1,
    "tx_fixed_eq_supported": 1,
    "tx_cdr_supported": 1,
    "rx_cdr_supported": 1,
    "rx_amplitude_supported": 1,
    "rx_pre_cursor_supported": 1,
    "rx_post_cursor_supported": 1,
    "host_input_loopback_supported": 1,
    "media_output_loopback_supported": 1,
    "per_lane_host_loopback": 1,
    "host_and_media_loopback": 1,
    "media_snr_supported": 1,
    "host_snr_supported": 1,
    "bit_counting_supported": 1,
    "ber_results_supported": 1,
    "media_fec_supported": 1,
    "host_generator_patterns": 0x00AA,
    "media_generator_patterns": 0x00AA,
    "host_checker_patterns": 0x00AA,
    "media_checker_patterns": 0x00AA,
}

_COHERENT: Mapping[str, Value] = {
    **_COMMON,
    "power_class": 7,
    "connector": 0x07,
    "media_technology": 0x10,
    "aux1_is_tec_current": 1,
    "aux1_monitor_supported": 1,
    "aux2_monitor_supported": 1,
    "bias_scale": 2,
    "detector_is_apd": 0,
    "wavelength_controllable": 1,
    "transmitter_tunable": 1,
    "smf_length_multiplier": 2,
    "smf_length_base": 12,
    "nominal_wavelength": 1552.5,
    "tx_adaptive_eq_fail_flag_supported": 1,
    "c_cmis_revision": 0x13,
}

_MODULE_LIMITS: Mapping[str, Limits] = {
    "temperature": (75.0, -5.0, 70.0, 0.0),
    "supply": (3.63, 2.97, 3.465, 3.135),
    "aux1": (90.0, -90.0, 80.0, -80.0),
    "aux2": (75.0, 20.0, 70.0, 25.0),
    "tx_bias": (400.0, 50.0, 350.0, 75.0),
}


def _names(*names: str) -> tuple[VdmInstance, ...]:
    return tuple(VdmInstance(OBSERVABLES_BY_NAME[name].code) for name in names)


def _fec_names(side: str) -> tuple[str, ...]:
    words = ("min", "max", "avg", "current")
    return (*(f"ber_{word}_{side}" for word in words), *(f"errored_frames_{word}_{side}" for word in words))


_COHERENT_VDM = (
    _names(
        "laser_age", "tec_current", "laser_frequency_error", "laser_temperature", "esnr_media", "esnr_host",
        *_fec_names("media"), "ferc_total_media", *_fec_names("host"), "ferc_total_host",
    ),
    _names(
        "modulator_bias_xi", "modulator_bias_xq", "modulator_bias_yi", "modulator_bias_yq", "modulator_bias_x_phase",
        "modulator_bias_y_phase", "cd_fine", "cd_coarse", "dgd", "sopmd_fine", "pdl", "osnr", "esnr", "cfo", "evm",
        "tx_power", "rx_total_power", "rx_signal_power", "sop_rate", "mer", "clock_recovery", "sopmd_coarse",
        "snr_margin", "q", "q_margin",
    ),
)  # fmt: skip
_NO_HIGH = 6553.5
_COHERENT_VDM_LIMITS: Mapping[int, Limits] = {
    OBSERVABLES_BY_NAME[name].code: limits
    for name, limits in {
        "ber_current_media": (1.25e-2, 0.0, 1.0e-2, 0.0),
        "osnr": (_NO_HIGH, 24.0, _NO_HIGH, 26.0),
        "esnr": (_NO_HIGH, 13.0, _NO_HIGH, 13.5),
        "pdl": (3.5, 0.0, 2.5, 0.0),
        "dgd": (28.0, 0.0, 20.0, 0.0),
        "cfo": (3600.0, -3600.0, 3000.0, -3000.0),
        "rx_total_power": (3.0, -22.0, 1.0, -20.0),
    }.items()
}

_ZR_GRIDS = {Grid.GHZ_100: (-17, 30), Grid.GHZ_75: (-69, 120), Grid.GHZ_6_25: (-276, 480)}

_400ZR = ModuleProfile(
    name="400zr",
    registers={**_COHERENT, "part_number": "EMU-400ZR", "max_power": 18.0},
    applications=(
        AdvertisedApplication(0x11, 0x3E, 8, 1, 0x01, 0x01),
        AdvertisedApplication(0x0D, 0x3E, 2, 1, 0x55, 0x01),
    ),
    media_lanes=1,
    receiver=ReceiverProfile(coherent=True, formats={0x3E: _CFEC}),
    laser=ModuleLaserProfile(
        grids=_ZR_GRIDS,
        fine=FineRange(100, -6000, 6000),
        min_power_dbm=-22.0,
        max_power_dbm=0.0,
        default_power_dbm=-10.0,
        default_grid=Grid.GHZ_75,
        default_channel=0,
    ),
    thresholds={
        **_MODULE_LIMITS,
        "tx_power": (1.0, -24.0, 0.5, -23.0),
        "rx_power": (3.0, -22.0, 1.0, -20.0),
    },
    vdm=_COHERENT_VDM,
    vdm_thresholds=_COHERENT_VDM_LIMITS,
)

_ZR_PLUS = ModuleProfile(
    name="zr-plus-high-power",
    registers={**_COHERENT, "part_number": "EMU-ZRPLUS-HP", "max_power": 23.0, "staged_set_1_supported": 1},
    applications=(
        AdvertisedApplication(0x11, 0x46, 8, 1, 0x01, 0x01),
        AdvertisedApplication(0x11, 0x3E, 8, 1, 0x01, 0x01),
        AdvertisedApplication(0x0D, 0x46, 2, 1, 0x55, 0x01),
        AdvertisedApplication(0x0F, 0x48, 4, 1, 0x01, 0x01),
        AdvertisedApplication(0x0D, 0x49, 2, 1, 0x01, 0x01),
    ),
    media_lanes=1,
    receiver=ReceiverProfile(
        coherent=True,
        formats={0x46: _OFEC_400, 0x3E: _CFEC, 0x48: _OFEC_200, 0x49: _OFEC_100},
        max_cd_ps_per_nm=20_000.0,
    ),
    laser=ModuleLaserProfile(
        grids={**_ZR_GRIDS, Grid.GHZ_50: (-35, 60)},
        fine=FineRange(1, -6000, 6000),
        min_power_dbm=-9.0,
        max_power_dbm=1.0,
        default_power_dbm=0.0,
        default_grid=Grid.GHZ_75,
        default_channel=0,
        retune_states=EVERY_STATE,
    ),
    tx_osnr_db=38.0,
    thresholds={
        **_MODULE_LIMITS,
        "tx_power": (3.0, -11.0, 2.0, -10.0),
        "rx_power": (3.0, -24.0, 1.0, -22.0),
    },
    vdm=_COHERENT_VDM,
    vdm_thresholds=_COHERENT_VDM_LIMITS,
    cdb=CdbProfile(epl_pages_code=7, firmware_needs_password=True, skips_erased=True, hitless=True),
    timing=Timing(power_up_s=30.0, dp_init_s=40.0, tuning_s=8.0, fw_copy_s=60.0),
)

_DR4_VDM = tuple(
    VdmInstance(OBSERVABLES_BY_NAME[name].code, lane)
    for lane in range(1, 5)
    for name in ("esnr_media", "pam4_ltp_media", *_fec_names("media"))
)

_DR4 = ModuleProfile(
    name="400g-dr4",
    registers={
        **_COMMON,
        "part_number": "EMU-400G-DR4",
        "power_class": 5,
        "max_power": 10.0,
        "connector": 0x0C,
        "media_technology": 0x06,
        "smf_length_base": 5,
        "nominal_wavelength": 1311.0,
        "wavelength_tolerance": 6.5,
        "per_lane_media_loopback": 1,
        "staged_set_1_supported": 1,
    },
    applications=(
        AdvertisedApplication(0x11, 0x1C, 8, 4, 0x01, 0x01),
        AdvertisedApplication(0x0D, 0x14, 2, 1, 0x55, 0x0F),
    ),
    media_lanes=4,
    receiver=ReceiverProfile(
        coherent=False,
        formats={0x1C: _KP4_LANE, 0x14: _KP4_LANE},
        implementation_snr_db=22.0,
        reference_snr_db=19.65,
        reference_dbm=-5.9,
        snr_per_db=2.0,
        los_assert_dbm=-15.0,
        los_release_dbm=-13.0,
        lol_ber=1e-2,
    ),
    launch_dbm=1.0,
    fixed_frequency_mhz=228_675_000.0,
    bias_ma=70.0,
    thresholds={
        **_MODULE_LIMITS,
        "tx_bias": (110.0, 20.0, 100.0, 30.0),
        "tx_power": (5.0, -5.9, 4.0, -2.9),
        "rx_power": (5.0, -8.9, 4.0, -5.9),
    },
    vdm=(_DR4_VDM,),
    vdm_thresholds={OBSERVABLES_BY_NAME["ber_current_media"].code: (2.4e-4, 0.0, 1.0e-4, 0.0)},
    timing=Timing(power_up_s=3.0, power_down_s=1.0, dp_init_s=4.0, dp_deinit_s=0.1),
)

PROFILES: Mapping[str, ModuleProfile] = MappingProxyType({item.name: item for item in (_400ZR, _ZR_PLUS, _DR4)})
"""CMIS modules by profile name."""


def profile_named(name: str) -> ModuleProfile:
    """Return a CMIS profile.

    Raises:
        ConfigError: There is none of that name, or it is not a CMIS module.
    """
    if name in SFP_PROFILES:
        kind = SFP_PROFILES[name]
        raise ConfigError(
            f"profile {name} is an SFP+ module with SFF-8472 memory, not a CMIS module",
            hint=f"Use {kind.__module__}.{kind.__qualname__}.",
        )
    if name not in PROFILES:
        known = ", ".join((*PROFILES, *SFP_PROFILES))
        raise ConfigError(f"there is no module profile {name}", hint=f"Known profiles: {known}.")
    return PROFILES[name]
