"""Profiles of the pluggable module types that can be emulated.

Register values of the coherent types are typical of their class. Powers follow IEEE 802.3 clauses 124 (DR4, DR8)
and 151 (FR4) but were not checked against their text. Those of the linear module are assumed to be the ones of DR4.
Interface codes are those of SFF-8024. Names and serial numbers are invented.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lumion_hw.emulator.transponders.sfp import SfpModule
from lumion_hw.errors import ConfigError
from lumion_hw.quantities import SPEED_OF_LIGHT_M_PER_S
from lumion_hw.standards.cmis import Value
from lumion_hw.standards.cmis.codec import EPL_PAGES
from lumion_hw.standards.cmis.codes import DataPathState, Grid
from lumion_hw.standards.cmis.grids import FineRange
from lumion_hw.standards.cmis.vdm import OBSERVABLES_BY_NAME

Limits = tuple[float, float, float, float]
"""The four limits of a monitor: high alarm, low alarm, high warning, low warning."""

EVERY_STATE = frozenset(DataPathState)
"""All data path states."""
STEADY_DARK_STATES = frozenset({DataPathState.DEACTIVATED, DataPathState.INITIALIZED})
"""Data path states without light or transition."""


@dataclass(frozen=True)
class AdvertisedApplication:
    """An application that the module offers (CMIS 6.2).

    Attributes:
        host_interface: Host interface id (SFF-8024 table 4-5).
        media_interface: Media interface id (SFF-8024 table 4-7 for single-mode fibre).
        host_lanes: Host lanes per data path.
        host_options: Possible first host lanes; bit k stands for lane k + 1.
        media_options: Possible first media lanes, likewise. The i-th possible host lane goes with the i-th possible
            media lane, or with the last when there are fewer (several data paths on one carrier).
    """

    host_interface: int
    media_interface: int
    host_lanes: int
    media_lanes: int
    host_options: int
    media_options: int

    def media_mask(self, host_lane: int) -> int:
        """Return the media lanes, as a bit mask, of the data path that starts on ``host_lane`` (from 1)."""
        # The i-th possible start on the host side belongs to the i-th on the media side.
        index = (self.host_options & ((1 << (host_lane - 1)) - 1)).bit_count()
        starts = [lane for lane in range(8) if self.media_options >> lane & 1]
        return ((1 << self.media_lanes) - 1) << starts[min(index, len(starts) - 1)]


@dataclass(frozen=True)
class ModuleLaserProfile:
    """Properties of a module's tunable laser.

    Attributes:
        grids: Lowest and highest channel of each grid.
        fine: Range of fine tuning, ``None`` without fine tuning.
        default_power_dbm: Target power after a reset.
        default_grid: Grid after a reset.
        default_channel: Channel after a reset.
        retune_states: Data path states in which a new channel is accepted.
        frequency_error_mhz: Largest error of the frequency.
    """

    grids: Mapping[Grid, tuple[int, int]]
    fine: FineRange | None
    min_power_dbm: float
    max_power_dbm: float
    default_power_dbm: float
    default_grid: Grid
    default_channel: int
    retune_states: frozenset[DataPathState] = STEADY_DARK_STATES
    frequency_error_mhz: float = 300.0


@dataclass(frozen=True)
class LineFormat:
    """Modulation and error correction of a media interface.

    Attributes:
        bits_per_symbol: Bits per symbol of a lane, both polarizations together: 8 for DP-16QAM, 4 for DP-QPSK, 2 for
            PAM4.
        fec_limit_ber: Largest bit error ratio at which frames are corrected.
        frame_bits: Bits in a frame of the error counters (project default).
    """

    bits_per_symbol: int
    symbol_rate_gbd: float
    fec_limit_ber: float
    frame_bits: int = 1_000_000

    @property
    def bit_rate(self) -> float:
        """Bit rate of one lane in bit/s."""
        return self.bits_per_symbol * self.symbol_rate_gbd * 1e9


@dataclass(frozen=True)
class ReceiverProfile:
    """Properties of a module's receiver.

    Attributes:
        coherent: Whether the receiver is coherent, with the module's own laser as local oscillator; otherwise direct
            detection.
        formats: Line formats by media interface id.
        implementation_snr_db: Largest SNR, limited by the electronics.
        reference_snr_db: SNR at ``reference_dbm`` from the receiver's noise alone.
        reference_dbm: Signal power for ``reference_snr_db``.
        snr_per_db: Increase of this SNR in dB per dB of signal power: 1 with a local oscillator, 2 for direct
            detection.
        los_assert_dbm: Total power below which loss of signal is asserted.
        los_release_dbm: Total power above which loss of signal is released.
        lol_ber: Bit error ratio above which lock is lost.
        max_offset_mhz: Carrier offset beyond which lock is lost.
        max_cd_ps_per_nm: Dispersion beyond which lock is lost.
    """

    coherent: bool
    formats: Mapping[int, LineFormat]
    implementation_snr_db: float = 17.0
    reference_snr_db: float = 16.4
    reference_dbm: float = -20.0
    snr_per_db: float = 1.0
    los_assert_dbm: float = -25.0
    los_release_dbm: float = -23.0
    lol_ber: float = 2e-2
    max_offset_mhz: float = 3600.0
    max_cd_ps_per_nm: float = 2400.0


@dataclass(frozen=True)
class Timing:
    """Durations of a module's operations in s; waiting times are shorter than on real modules."""

    management_init_s: float = 0.5
    power_up_s: float = 15.0
    power_down_s: float = 2.0
    dp_init_s: float = 20.0
    dp_deinit_s: float = 0.3
    tx_turn_on_s: float = 0.05
    tx_turn_off_s: float = 0.005
    tuning_s: float = 5.0
    fine_tuning_s: float = 0.2
    lock_s: float = 0.5
    apply_s: float = 0.02
    freeze_s: float = 0.05
    unfreeze_s: float = 0.05
    cdb_s: float = 0.03
    fw_start_s: float = 2.0
    fw_abort_s: float = 0.1
    fw_write_s: float = 0.005
    fw_complete_s: float = 3.0
    fw_copy_s: float = 10.0
    selector_s: float = 0.05
    page_change_s: float = 0.0
    nv_write_s: float = 0.0
    sample_s: float = 0.1
    sub_interval_s: float = 1.0

    def scaled(self, factor: float) -> Timing:
        """Return the timing with all durations multiplied by ``factor``. Raises ``ValueError`` unless positive."""
        if not factor > 0:
            raise ValueError(f"cannot scale times by {factor}; the factor must be positive")
        values = {item.name: getattr(self, item.name) * factor for item in dataclasses.fields(self)}
        return Timing(**values)


@dataclass(frozen=True)
class VdmInstance:
    """One reported VDM observable: type code and lane (from 1)."""

    code: int
    lane: int = 1


@dataclass(frozen=True)
class CdbProfile:
    """Properties of a module's command data block (CDB).

    Attributes:
        epl_pages_code: Code for the number of EPL pages, register 01h:163.3-0.
        background: Whether registers are readable while a command runs; otherwise the module does not acknowledge.
        firmware: Major, minor and build of images A and B. Image A runs.
        factory: Major, minor and build of the factory image.
        firmware_needs_password: Whether firmware changes need the password.
        skips_erased: Whether a download may omit blocks that contain only the value of erased bytes.
        hitless: Whether the module can restart without loss of traffic.
    """

    epl_pages_code: int = 0
    background: bool = True
    firmware: tuple[tuple[int, int, int], tuple[int, int, int]] = ((1, 4, 17), (1, 3, 9))
    factory: tuple[int, int, int] = (1, 0, 1)
    firmware_needs_password: bool = False
    skips_erased: bool = False
    hitless: bool = False

    @property
    def epl_pages(self) -> int:
        """Number of pages for the extended payload (EPL) of CDB commands."""
        return EPL_PAGES[self.epl_pages_code]


@dataclass(frozen=True)
class ModuleProfile:
    """Properties of a type of pluggable module.

    Attributes:
        registers: Read-only fields by name, in physical units; missing fields are 0.
        laser: The tunable laser, ``None`` without one.
        launch_dbm: Launch power of a lane without programmable power.
        fixed_frequency_mhz: Carrier of a module without tunable laser.
        fibre_wavelengths_nm: Wavelengths of the lanes that share a fibre; the next fibre has the same wavelengths
            again. Empty if each lane has a fibre.
        tx_osnr_db: The transmitter's own OSNR in 0.1 nm.
        bias_ma: Laser bias of a lane that sends.
        idle_temperature_c: Case temperature in low power.
        working_temperature_c: Case temperature when ready.
        thresholds: Limits by monitor: temperatures in degC (``temperature``, ``aux2``), ``supply`` in V, TEC current in
            % (``aux1``), ``tx_bias`` in mA, powers in dBm.
        vdm: Reported VDM observables, by group.
        vdm_thresholds: Limits by the code of a VDM observable, in its unit; other observables have no limits.
        user_eeprom: Whether the module has page 03h.
        diagnostics: Whether the module has pages 13h and 14h.
        host_bit_rate: Bits per second of one host lane.
        cdb: Command data block; ``None`` without one.
    """

    name: str
    registers: Mapping[str, Value]
    applications: tuple[AdvertisedApplication, ...]
    media_lanes: int
    receiver: ReceiverProfile
    laser: ModuleLaserProfile | None = None
    launch_dbm: float = 0.0
    fixed_frequency_mhz: float = 193_100_000.0
    fibre_wavelengths_nm: tuple[float, ...] = ()
    tx_osnr_db: float = 36.0
    bias_ma: float = 250.0
    idle_temperature_c: float = 35.0
    working_temperature_c: float = 52.0
    supply_v: float = 3.3
    tec_percent: float = 22.0
    laser_temperature_c: float = 48.0
    thresholds: Mapping[str, Limits] = field(default_factory=dict)
    vdm: tuple[tuple[VdmInstance, ...], ...] = ()
    vdm_thresholds: Mapping[int, Limits] = field(default_factory=dict)
    user_eeprom: bool = True
    diagnostics: bool = True
    host_bit_rate: float = 53.125e9
    cdb: CdbProfile | None = CdbProfile()
    timing: Timing = Timing()

    @property
    def coherent(self) -> bool:
        """Whether the module is coherent (pages 30h and up)."""
        return self.receiver.coherent

    def fibre(self, lane: int) -> tuple[int, int]:
        """Return the fibre of a media lane, and its wavelength by number; both from 1."""
        if not self.fibre_wavelengths_nm:
            return lane, lane
        fibre, wavelength = divmod(lane - 1, len(self.fibre_wavelengths_nm))
        return fibre + 1, wavelength + 1

    def frequency_mhz(self, lane: int) -> float:
        """Return the carrier of a media lane without tunable laser."""
        if not self.fibre_wavelengths_nm:
            return self.fixed_frequency_mhz
        wavelength_nm = self.fibre_wavelengths_nm[self.fibre(lane)[1] - 1]
        return SPEED_OF_LIGHT_M_PER_S / wavelength_nm * 1e3

    def application(self, app_sel: int) -> AdvertisedApplication | None:
        """Return the advertised application number ``app_sel`` (from 1); ``None`` if there is none."""
        return self.applications[app_sel - 1] if 1 <= app_sel <= len(self.applications) else None


@dataclass(frozen=True)
class ModuleQuirks:
    """Deviations from the standard that were seen on real modules; the defaults follow the standard.

    Attributes:
        lenient_writes: Whether writes of any length are accepted on every page. Otherwise writes of more than 8 bytes
            are not acknowledged, except on the CDB pages.
        stepped_config_only: Whether a data path must be deactivated before it is configured (00h:2.6).
        inverted_deinit: Whether a 1 in 10h:128 powers the data path up, as in CMIS 3.
        ignores_low_power: Whether low power requests have no effect (modules of power class 1).
        init_pending_s: Longest time for which DPInitPending is visible.
        init_pending_clobbers: Whether raising DPInitPending for one data path clears it for the others.
        password_protects_eeprom: Whether page 03h is writable only after the password.
        refuses_page_silently: Whether PageSelect keeps the number of an unsupported page, whose bytes then read as 0.
        page_change_s: Time without acknowledgement after a page change (real boards: 10 ms).
        nv_write_s: Time without acknowledgement after a write to the user EEPROM (80 ms).
        apply_s: Time for which ConfigStatus stays in progress; by default that of the profile.
    """

    lenient_writes: bool = False
    stepped_config_only: bool = False
    inverted_deinit: bool = False
    ignores_low_power: bool = False
    init_pending_s: float | None = None
    init_pending_clobbers: bool = False  # seen in: sonic-net/sonic-platform-daemons pull 696
    password_protects_eeprom: bool = False
    refuses_page_silently: bool = False
    page_change_s: float = 0.0
    nv_write_s: float = 0.0
    apply_s: float | None = None

    def timing(self, timing: Timing) -> Timing:
        """Return the timing of a profile with these deviations."""
        apply_s = timing.apply_s if self.apply_s is None else self.apply_s
        return dataclasses.replace(
            timing, page_change_s=self.page_change_s, nv_write_s=self.nv_write_s, apply_s=apply_s
        )


SFP_PROFILES: Mapping[str, type[SfpModule]] = MappingProxyType({"10gbase-er": SfpModule})
"""Profiles that are not CMIS modules, with the class that emulates them."""

# OIF-400ZR (C-FEC), oFEC of the ZR+ modes and of 800ZR (about 118.2 GBd), and RS(544,514) on PAM4 lanes of 106.25 Gb/s.
_CFEC = LineFormat(8, 59.84, 1.25e-2)
_OFEC_400 = LineFormat(8, 60.14, 2.0e-2)
_OFEC_200 = LineFormat(4, 60.14, 2.0e-2)
_OFEC_100 = LineFormat(4, 30.07, 2.0e-2)
_OFEC_800 = LineFormat(8, 118.2, 2.0e-2)
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


_800ZR = dataclasses.replace(
    _400ZR,
    name="800zr",
    registers={**_400ZR.registers, "part_number": "EMU-800ZR", "max_power": 28.0, "cmis_revision": 0x53},
    applications=(
        AdvertisedApplication(0x52, 0x6C, 8, 1, 0x01, 0x01),
        AdvertisedApplication(0x50, 0x6C, 4, 1, 0x11, 0x01),
    ),
    # Twice the symbols of 400ZR in the same noise: 3 dB more light for the same SNR.
    receiver=ReceiverProfile(coherent=True, formats={0x6C: _OFEC_800}, reference_dbm=-17.0),
    laser=ModuleLaserProfile(
        grids={Grid.GHZ_150: (-72, 114), Grid.GHZ_6_25: (-276, 468)},
        fine=FineRange(100, -6000, 6000),
        min_power_dbm=-22.0,
        max_power_dbm=0.0,
        default_power_dbm=-10.0,
        default_grid=Grid.GHZ_150,
        default_channel=0,
    ),
    tx_osnr_db=38.0,
    host_bit_rate=106.25e9,
    timing=Timing(power_up_s=20.0, dp_init_s=30.0),
)
"""800ZR at 150 GHz: 32 channels from 191.375 to 196.025 THz. Powers and times are project defaults."""


def _pam4_vdm(n_lanes: int) -> tuple[tuple[VdmInstance, ...], ...]:
    """Return the VDM observables of PAM4 lanes; a group holds those of four lanes."""
    names = ("esnr_media", "pam4_ltp_media", *_fec_names("media"))
    return tuple(
        tuple(VdmInstance(OBSERVABLES_BY_NAME[name].code, lane) for lane in range(first, first + 4) for name in names)
        for first in range(1, n_lanes + 1, 4)
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
    vdm=_pam4_vdm(4),
    vdm_thresholds={OBSERVABLES_BY_NAME["ber_current_media"].code: (2.4e-4, 0.0, 1.0e-4, 0.0)},
    timing=Timing(power_up_s=3.0, power_down_s=1.0, dp_init_s=4.0, dp_deinit_s=0.1),
)

_CWDM4_NM = (1271.0, 1291.0, 1311.0, 1331.0)

_FR4 = dataclasses.replace(
    _DR4,
    name="400g-fr4",
    registers={
        **_DR4.registers,
        "part_number": "EMU-400G-FR4",
        "connector": 0x07,
        "smf_length_multiplier": 1,
        "smf_length_base": 2,
        "nominal_wavelength": 1301.0,
        "wavelength_tolerance": 36.5,
    },
    applications=(AdvertisedApplication(0x11, 0x1D, 8, 4, 0x01, 0x01),),
    receiver=dataclasses.replace(_DR4.receiver, formats={0x1D: _KP4_LANE}, reference_dbm=-7.3),
    fibre_wavelengths_nm=_CWDM4_NM,
    thresholds={
        **_DR4.thresholds,
        "tx_power": (4.5, -6.3, 3.5, -3.3),
        "rx_power": (4.5, -10.3, 3.5, -7.3),
    },
)

_800G: Mapping[str, Value] = {"identifier": 0x19, "identifier_copy": 0x19, "power_class": 7, "max_power": 16.0}
"""Registers of 800G modules: OSFP, power class 8."""

_2_FR4 = dataclasses.replace(
    _FR4,
    name="2x400g-fr4",
    registers={**_FR4.registers, **_800G, "part_number": "EMU-2X400G-FR4"},
    applications=(AdvertisedApplication(0x50, 0x1D, 4, 4, 0x11, 0x11),),
    media_lanes=8,
    vdm=_pam4_vdm(8),
    host_bit_rate=106.25e9,
)

_DR8 = dataclasses.replace(
    _DR4,
    name="800g-dr8",
    registers={**_DR4.registers, **_800G, "part_number": "EMU-800G-DR8", "connector": 0x28},
    applications=(
        AdvertisedApplication(0x52, 0x56, 8, 8, 0x01, 0x01),
        AdvertisedApplication(0x50, 0x1C, 4, 4, 0x11, 0x11),
        AdvertisedApplication(0x4C, 0x14, 1, 1, 0xFF, 0xFF),
    ),
    media_lanes=8,
    receiver=dataclasses.replace(_DR4.receiver, formats=dict.fromkeys((0x56, 0x1C, 0x14), _KP4_LANE)),
    vdm=_pam4_vdm(8),
    host_bit_rate=106.25e9,
)

_WITHOUT_RETIMER = dict.fromkeys(
    (
        "tx_lol_flag_supported",
        "rx_lol_flag_supported",
        "tx_adaptive_eq_supported",
        "tx_cdr_supported",
        "rx_cdr_supported",
    ),
    0,
)
"""A linear module recovers no clock, so it can lose none and knows no errors."""

_LPO = dataclasses.replace(
    _DR4,
    name="400g-lpo-dr4",
    registers={
        **_DR4.registers,
        **_WITHOUT_RETIMER,
        "part_number": "EMU-400G-LPO-DR4",
        "identifier": 0x1E,
        "identifier_copy": 0x1E,
        "power_class": 2,
        "max_power": 4.5,
    },
    applications=(
        AdvertisedApplication(0x74, 0x91, 4, 4, 0x01, 0x01),
        AdvertisedApplication(0x74, 0x8F, 1, 1, 0x0F, 0x0F),
    ),
    receiver=dataclasses.replace(_DR4.receiver, formats={0x91: _KP4_LANE, 0x8F: _KP4_LANE}),
    vdm=(),
    vdm_thresholds={},
    diagnostics=False,
    host_bit_rate=106.25e9,
    timing=Timing(power_up_s=1.0, power_down_s=0.5, dp_init_s=0.4, dp_deinit_s=0.1),
)

_WITHOUT_LIGHT = dict.fromkeys(
    (
        "cooled",
        "rx_power_is_average",
        "rx_los_is_average",
        "tx_power_monitor_supported",
        "tx_bias_monitor_supported",
        "rx_power_monitor_supported",
        "tx_failure_flag_supported",
    ),
    0,
)

_AEC = ModuleProfile(
    name="aec",
    registers={
        **_COMMON,
        **_WITHOUT_LIGHT,
        "part_number": "EMU-400G-AEC",
        "media_type": 4,
        "power_class": 2,
        "max_power": 6.0,
        "connector": 0x23,
        "media_technology": 0x0C,
        "cable_length_multiplier": 0,
        "cable_length_base": 25,
    },
    applications=(
        AdvertisedApplication(0x11, 0x03, 8, 8, 0x01, 0x01),
        AdvertisedApplication(0x0D, 0x03, 2, 2, 0x55, 0x55),
    ),
    media_lanes=8,
    receiver=dataclasses.replace(_DR4.receiver, formats={0x03: LineFormat(2, 26.5625, 2.6e-4)}),
    thresholds={name: _MODULE_LIMITS[name] for name in ("temperature", "supply")},
    timing=Timing(power_up_s=1.0, power_down_s=0.5, dp_init_s=2.0, dp_deinit_s=0.1),
)
"""Active copper cable with retimers; powers of its light stand for electrical levels."""

PROFILES: Mapping[str, ModuleProfile] = MappingProxyType(
    {item.name: item for item in (_400ZR, _ZR_PLUS, _800ZR, _DR4, _FR4, _2_FR4, _DR8, _LPO, _AEC)}
)
"""CMIS modules by profile name."""


def find_profile(name: str) -> ModuleProfile:
    """Return the CMIS module profile with a given name. Raises ``ConfigError`` if there is none."""
    if name in SFP_PROFILES:
        kind = SFP_PROFILES[name]
        raise ConfigError(
            f"profile {name} is an SFP+ module with SFF-8472 memory, not a CMIS module",
            hint=f"Use {kind.__module__}.{kind.__qualname__}.",
        )
    if name not in PROFILES:
        names = ", ".join((*PROFILES, *SFP_PROFILES))
        raise ConfigError(f"unknown module profile {name!r}", hint=f"Known profiles: {names}.")
    return PROFILES[name]
