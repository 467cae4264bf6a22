"""``cmis``: CMIS modules (QSFP-DD, OSFP ...), coherent or direct-detection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from lumion_hw.bench.file.fields import Number, WholeNumber
from lumion_hw.bench.file.kind import DeviceKind
from lumion_hw.bench.file.module_connection import ModuleConnection, module_device
from lumion_hw.bench.file.module_optics import ModuleFormat, ModuleOptics
from lumion_hw.bench.file.paged_module import PagedModuleModel
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link
from lumion_hw.quantities import db_from_ratio, wavelength_m_from_frequency_hz

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.emulator.transponders.cmis.optics import Emit, Optics
    from lumion_hw.emulator.transponders.cmis.profiles import ModuleProfile
    from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
    from lumion_hw.interfaces import Transponder


_400ZR = ModuleFormat("400ZR", 400.0, required_osnr_db=26.0, media_id=0x3E)
_800ZR = ModuleFormat("800ZR", 800.0, required_osnr_db=29.0, media_id=0x6C)
_OPEN_ZR = ModuleFormat("ZR400-OFEC", 400.0, required_osnr_db=24.0, media_id=0x46)
_DR4_LEVELS_DBM = (1.0, -5.9, 4.0)
_FR4_LEVELS_DBM = (1.0, -7.3, 3.5)
_CWDM_NM = (1271.0, 1291.0, 1311.0, 1331.0)  # IEEE 802.3 clause 151
_CHANNEL_NM = 1552.524381  # 193.1 THz, default channel of tunable modules
_CHANNEL_150GHZ_NM = 1551.921615  # 193.175 THz, default channel of modules with the 150 GHz grid
_COHERENT = ModuleOptics(
    formats=(_400ZR,),
    polarizations=2,
    emits_nm=_CHANNEL_NM,
    receives_nm=(1528.7, 1566.8),  # 191.35 to 196.1 THz
    launch_dbm=-10.0,
    sensitivity_dbm=-20.0,
    overload_dbm=0.0,
    launch_osnr_db=36.0,
    ample_dbm=-12.0,
    clean_osnr_db=34.0,
    max_pdl_db=2.5,
    max_dgd_ps=20.0,
)


def _parallel(name: str, media_id: int) -> ModuleOptics:
    """Return the planning data of a lane with a fibre of its own."""
    lane = ModuleFormat(name, 106.25, media_id=media_id)
    return ModuleOptics((lane,), 1, 1311.0, (1304.5, 1317.5), *_DR4_LEVELS_DBM, max_dgd_ps=2.0)


def _multiplexed(name: str, media_id: int) -> ModuleOptics:
    """Return the planning data of four lanes in one fibre: the totals of all lanes."""
    lane = ModuleFormat(name, 106.25, media_id=media_id)
    launch_dbm, sensitivity_dbm, overload_dbm = (level + db_from_ratio(len(_CWDM_NM)) for level in _FR4_LEVELS_DBM)
    levels_dbm = launch_dbm, sensitivity_dbm, overload_dbm
    return ModuleOptics((lane,), 1, 1301.0, (1264.5, 1337.5), *levels_dbm, max_dgd_ps=2.0, lanes_nm=_CWDM_NM)


_OPTICS: Mapping[str, ModuleOptics | None] = {
    "400zr": _COHERENT,
    "zr-plus-high-power": replace(_COHERENT, formats=(_OPEN_ZR, _400ZR), launch_dbm=0.0, launch_osnr_db=38.0),
    "800zr": replace(
        _COHERENT,
        formats=(_800ZR,),
        emits_nm=_CHANNEL_150GHZ_NM,
        launch_osnr_db=38.0,
        sensitivity_dbm=-17.0,
        ample_dbm=-9.0,
        clean_osnr_db=37.0,
        max_dgd_ps=10.0,
    ),
    "400g-dr4": _parallel("100GBASE-DR", 0x14),
    "400g-fr4": _multiplexed("400GBASE-FR4", 0x1D),
    "2x400g-fr4": _multiplexed("400GBASE-FR4", 0x1D),
    "800g-dr8": _parallel("100GBASE-DR", 0x14),
    "1.6t-2xdr8": _parallel("100GBASE-DR", 0x14),
    "3.2t-4xdr8": _parallel("100GBASE-DR", 0x14),
    "400g-lpo-dr4": _parallel("100G-DR1-LPO", 0x8F),
    "aec": None,  # copper
}
"""Optical data for the planning of circuits, by profile of the module.

400ZR (product page 02313LHH): receives -20 to 0 dBm at 34 dB OSNR; 26 dB OSNR are sufficient above -12 dBm. The full
penalty is reached at a PDL of 2.5 dB or a PMD of 10 ps; the receiver loses its lock at a DGD of 20 ps. ZR+: 24 dB OSNR
(OpenROADM, 400G). 800ZR: 3 dB more light and OSNR than 400ZR, half the DGD, for twice the symbol rate (assumed). DR4
and DR8: IEEE 802.3 clause 124, per lane; paths combined at a receiver may differ by a tenth of a symbol at 53.1 GBd.
FR4: clause 151, totals of the four lanes; of a 2x400g-fr4 only the first fibre is planned. The levels of the linear
module are assumed to be those of DR4.
"""
_LANES_WITH_FIBRE: Mapping[str, int] = {
    "400g-dr4": 4,
    "400g-lpo-dr4": 4,
    "800g-dr8": 8,
    "1.6t-2xdr8": 16,
    "3.2t-4xdr8": 32,
}
"""Number of media lanes that have a fibre of their own, by profile; the lanes of other modules share one."""


class CmisModel(PagedModuleModel):
    """A CMIS module (QSFP-DD, OSFP ...), coherent or direct-detection."""

    kind: Literal["cmis"]
    media_lane: WholeNumber | None = Field(
        None, ge=1, le=32, description="The one media lane that is connected to a fibre; by default all lanes."
    )
    profile: Literal[
        "400zr",
        "zr-plus-high-power",
        "800zr",
        "400g-dr4",
        "400g-fr4",
        "2x400g-fr4",
        "800g-dr8",
        "400g-lpo-dr4",
        "aec",
        "1.6t-2xdr8",
        "3.2t-4xdr8",
    ] = Field(
        "400zr",
        description="Type of module, for planning and for the emulator. Other keys override its planning data. "
        "A real module reports its own type.",
    )
    frequency_thz: Number | None = Field(
        None, ge=186.0, le=240.0, description="Transmit frequency of a tunable module; by default 193.1."
    )
    tx_power_dbm: Number | None = Field(
        None, ge=-30.0, le=10.0, description="Launch power for link budgets; by default that of the profile."
    )
    sensitivity_dbm: Number | None = Field(
        None,
        ge=-40.0,
        le=10.0,
        description="Lowest received power at which a link works; by default that of the profile.",
    )
    overload_dbm: Number | None = Field(
        None,
        ge=-40.0,
        le=10.0,
        description="Highest received power at which a link works; by default that of the profile.",
    )
    required_osnr_db: Number | None = Field(
        None,
        ge=0.0,
        le=60.0,
        description="Required OSNR in 0.1 nm at high received power; by default that of the line format.",
    )
    max_pdl_db: Number | None = Field(
        None, ge=0.0, le=20.0, description="Largest polarization-dependent loss; by default that of the profile."
    )
    max_dgd_ps: Number | None = Field(
        None, ge=0.0, le=1000.0, description="Largest differential group delay; by default that of the profile."
    )
    power_request: Literal["software", "pin"] = Field(
        "software",
        description="Control of low-power mode: by the LowPwrRequestSW bit of the module, or by the pin of its socket.",
    )

    @property
    def optics(self) -> ModuleOptics | None:
        """Optical data for planning, from the profile and the bench file; ``None`` for cables."""
        base = _OPTICS[self.profile]
        if base is None:
            return None
        overrides = {
            "launch_dbm": self.tx_power_dbm,
            "sensitivity_dbm": self.sensitivity_dbm,
            "overload_dbm": self.overload_dbm,
            "max_pdl_db": self.max_pdl_db,
            "max_dgd_ps": self.max_dgd_ps,
            "emits_nm": self.frequency_thz and wavelength_m_from_frequency_hz(self.frequency_thz * 1e12) * 1e9,
        }
        changes: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
        if self.required_osnr_db is not None:
            changes["formats"] = tuple(
                replace(line_format, required_osnr_db=self.required_osnr_db) for line_format in base.formats
            )
        return replace(base, **changes)

    @property
    def nominal_nm(self) -> float | None:
        """Wavelength of a direct-detection module, whose laser cannot be tuned."""
        optics = self.optics
        return optics.emits_nm if optics is not None and optics.polarizations == 1 else None

    @model_validator(mode="after")
    def _levels_in_order(self) -> Self:
        optics = self.optics
        if optics is None:
            return self
        if not optics.sensitivity_dbm < optics.overload_dbm:
            range_text = f"{optics.sensitivity_dbm:g} and {optics.overload_dbm:g}"
            raise ValueError(f"expected sensitivity_dbm below overload_dbm, found {range_text}")
        if self.frequency_thz is not None and not optics.receives_nm[0] <= optics.emits_nm <= optics.receives_nm[1]:
            low, high = optics.receives_nm
            raise ValueError(
                f"expected a frequency_thz at a wavelength of {low:g} to {high:g} nm ({self.profile}), "
                f"found {self.frequency_thz:g} THz ({optics.emits_nm:.2f} nm)"
            )
        return self


def _open(name: str, model: CmisModel, link: Link | ModuleConnection, clock: Clock) -> Transponder:
    from lumion_hw.drivers.transponders.cmis import CmisTransponder

    device, pins = module_device(
        link, clock, name, None if model.pins is None else model.pins.wired(), model.read_bytes
    )
    return model.open_device(
        CmisTransponder(
            device,
            clock,
            device=name,
            expected_vendor=model.vendor,
            expected_part_number=model.part_number,
            expected_serial=model.serial,
            quirks={"power_request": model.power_request},
            lane=model.media_lane,
            hold_off_s=model.hold_off_s,
            pins=pins,
        )
    )


def _emulate(bench: EmulatedBench, name: str, model: CmisModel) -> I2cBridge:
    from lumion_hw.emulator.transponders.cmis import BankedModule, CmisModule, ModuleOnBus
    from lumion_hw.emulator.transponders.cmis.banked import BANKED_PROFILES
    from lumion_hw.emulator.transponders.cmis.profiles import find_profile

    if model.profile in BANKED_PROFILES:
        light = bench.cmis_light
        banked = BankedModule(
            model.profile,
            bench.clock,
            seed=int(bench.rng(name).integers(1 << 32)),
            device=name,
            serial=model.emulated_serial(name),
            optics=light.optics(name),
            emit=light.emit(name),
            warm=bench.warm,
        )
        return bench.on_i2c(name, banked, ModuleOnBus(banked))
    profile = find_profile(model.profile)
    optics, emit = _light(bench, name, model, profile)
    module = CmisModule(
        profile,
        bench.clock,
        bench.rng(name),
        name=name,
        serial=model.emulated_serial(name),
        optics=optics,
        emit=emit,
        warm=bench.warm,
    )
    return bench.on_i2c(name, module, ModuleOnBus(module))


def _light(bench: EmulatedBench, name: str, model: CmisModel, profile: ModuleProfile) -> tuple[Optics, Emit]:
    """Return the functions that connect a module to the optical model."""
    from lumion_hw.emulator.transponders.cmis.optics import ReceivedLight, ignored

    if model.optics is None:
        return lambda _lane, _at_s: ReceivedLight(0.0, 0.0), ignored  # the far end of the cable always sends
    shared_nm = profile.fibre_wavelengths_nm
    if shared_nm:
        light = bench.cmis_light
        return light.optics_demultiplexed(name, shared_nm), light.emit_multiplexed(name, shared_nm)
    light = bench.coherent_light if model.optics.polarizations == 2 else bench.cmis_light
    return light.optics(name), light.emit(name)


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import BUS_STUCK, MODULE_UNPLUGGED, calls_module, lasting, panel_fault
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.emulator.transponders.cmis.faults import FAULTS

    return (
        MODULE_UNPLUGGED,
        BUS_STUCK,
        lasting(
            "low_power_pin",
            "the low-power pin is asserted: the module powers down unless its register overrides the pin",
            calls_module,
            "set_low_power_pin",
            may_precede=True,
        ),
        ScriptedFault(
            "no_host_signal",
            "the host lanes receive no electrical signal: the module squelches its output",
            begin=calls_module("set_host_signal", 0x00),
            end=calls_module("set_host_signal", 0xFF),
        ),
        ScriptedFault(
            "module_reset",
            "a pulse on the reset pin: all registers return to their defaults",
            begin=calls_module("reset"),
            is_momentary=True,
        ),
        *(panel_fault(name, fault) for name, fault in FAULTS.items() if name != "unplug"),
    )


def _media_lanes(entry: Mapping[Any, Any]) -> int:
    return _LANES_WITH_FIBRE.get(entry.get("profile", ""), 1)


KIND = DeviceKind(
    title="CMIS module (QSFP-DD, OSFP ...), coherent or direct-detection: [transponders](transponders.md)",
    role=Role.TRANSPONDER,
    model=CmisModel,
    open=_open,
    module_connections=True,
    emulate=_emulate,
    baud=9600,
    wire="pty",
    faults=_faults,
    media_lanes=_media_lanes,
)
