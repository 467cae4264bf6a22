"""``qsfp-8636``: QSFP+ and QSFP28 modules read over SFF-8636."""

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
from lumion_hw.quantities import db_from_ratio
from lumion_hw.standards.sff8636.registers import LANES

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
    from lumion_hw.interfaces import Transponder

_PARALLEL = ("100g-sr4", "100g-psm4", "100g-aoc")
"""Profiles with one fibre per lane; the lanes of others share a fibre, or have none."""
_25G, _10G = 25.78125, 10.3125  # Gb/s per lane
_SKEW_25G_PS, _SKEW_10G_PS = 8.0, 20.0  # a fifth of a bit between paths combined at a receiver (assumed)


def _optics(
    name: str,
    rate_gbps: float,
    emits_nm: float,
    receives_nm: tuple[float, float],
    levels_dbm: tuple[float, ...],
    lanes_nm: tuple[float, ...] = (),
) -> ModuleOptics:
    """Return the planning data of one lane; ``levels_dbm`` are launch power, sensitivity and overload."""
    launch_dbm, sensitivity_dbm, overload_dbm = levels_dbm
    return ModuleOptics(
        formats=(ModuleFormat(name, rate_gbps),),
        polarizations=1,
        emits_nm=emits_nm,
        receives_nm=receives_nm,
        launch_dbm=launch_dbm,
        sensitivity_dbm=sensitivity_dbm,
        overload_dbm=overload_dbm,
        max_dgd_ps=_SKEW_25G_PS if rate_gbps == _25G else _SKEW_10G_PS,
        lanes_nm=lanes_nm,
    )


_LAN_WDM_NM = (1295.56, 1300.05, 1304.58, 1309.14)  # IEEE 802.3 Table 88-5
_CWDM_NM = (1271.0, 1291.0, 1311.0, 1331.0)  # IEEE 802.3 Table 87-5
_OPTICS: Mapping[str, ModuleOptics | None] = {
    "100g-lr4": _optics("100GBASE-LR4", _25G, 1302.35, (1294.53, 1310.19), (0.0, -10.6, 4.5), _LAN_WDM_NM),
    "100g-cwdm4": _optics("100G CWDM4", _25G, 1301.0, (1264.5, 1337.5), (-1.0, -11.5, 2.5), _CWDM_NM),
    "100g-sr4": _optics("100GBASE-SR4", _25G, 850.0, (840.0, 860.0), (-1.0, -10.3, 2.4)),
    "100g-psm4": _optics("100G PSM4", _25G, 1310.0, (1295.0, 1325.0), (-1.0, -12.66, 2.0)),
    "100g-aoc": None,  # the fibres end inside the cable
    "100g-cr4": None,  # copper
    "40g-lr4": _optics("40GBASE-LR4", _10G, 1301.0, (1264.5, 1337.5), (-1.0, -13.7, 2.3), _CWDM_NM),
}
"""Optical data of one lane for the planning of circuits, by profile of the module.

Average powers, lowest and highest received, and wavelengths of all lanes: IEEE 802.3 clauses 88 (LR4), 95 (SR4) and 87
(40G), 100G CWDM4 MSA rev. 1.1, 100G PSM4 MSA rev. 2.0. The launch powers are typical values within their limits
(assumed). ``emits_nm`` of lanes with different wavelengths is the middle of their band.
"""


class QsfpModel(PagedModuleModel):
    """A QSFP+ or QSFP28 module read over SFF-8636."""

    kind: Literal["qsfp-8636"]
    accept_wrong_checksums: bool = Field(
        False, description="If CC_EXT in the module's memory is wrong, log a warning instead of raising an error."
    )
    profile: Literal["100g-lr4", "100g-cwdm4", "100g-sr4", "100g-psm4", "100g-aoc", "100g-cr4", "40g-lr4"] = Field(
        "100g-lr4",
        description="Type of module, for planning and for the emulator. Other keys override its planning data. "
        "A real module reports its own type.",
    )
    max_power_class: WholeNumber = Field(
        4,
        ge=1,
        le=8,
        description="Highest power class that the cage can supply and cool; a module of a higher class is not enabled.",
    )
    wavelength_nm: Number | None = Field(
        None,
        ge=770.0,
        le=1700.0,
        description="Nominal wavelength; by default that of the profile. Lanes with different wavelengths keep their "
        "distances from it.",
    )
    tx_power_dbm: Number | None = Field(
        None, ge=-20.0, le=10.0, description="Launch power of a lane for link budgets; by default that of the profile."
    )
    sensitivity_dbm: Number | None = Field(
        None,
        ge=-40.0,
        le=10.0,
        description="Lowest received power of a lane at which a link works; by default that of the profile.",
    )
    overload_dbm: Number | None = Field(
        None,
        ge=-40.0,
        le=10.0,
        description="Highest received power of a lane at which a link works; by default that of the profile.",
    )
    receives_nm: tuple[Number, Number] | None = Field(
        None, description="Shortest and longest wavelength received; by default those of the profile."
    )
    media_lane: WholeNumber | None = Field(
        None, ge=1, le=4, description="Set for each lane that the wiring names, such as psm4-a/2."
    )

    @property
    def nominal_nm(self) -> float | None:
        """Wavelength of the module in nm; ``None`` for cables."""
        optics = self.optics
        return None if optics is None else optics.emits_nm

    @property
    def lane_optics(self) -> ModuleOptics | None:
        """Optical data of one lane; ``None`` for cables."""
        base = _OPTICS[self.profile]
        if base is None:
            return None
        overrides = {
            "emits_nm": self.wavelength_nm,
            "receives_nm": self.receives_nm,
            "launch_dbm": self.tx_power_dbm,
            "sensitivity_dbm": self.sensitivity_dbm,
            "overload_dbm": self.overload_dbm,
        }
        changes: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
        if self.wavelength_nm is not None:
            changes["lanes_nm"] = tuple(nm + self.wavelength_nm - base.emits_nm for nm in base.lanes_nm)
        return replace(base, **changes)

    @property
    def optics(self) -> ModuleOptics | None:
        """Optical data for the planning of circuits; ``None`` for cables.

        Powers are those of a lane if each lane has a fibre, and totals of all lanes if they share one.
        """
        lane = self.lane_optics
        if lane is None:
            return None
        total_db = 0.0 if self.profile in _PARALLEL else db_from_ratio(len(LANES))
        return replace(
            lane,
            launch_dbm=lane.launch_dbm + total_db,
            sensitivity_dbm=lane.sensitivity_dbm + total_db,
            overload_dbm=lane.overload_dbm + total_db,
        )

    @model_validator(mode="after")
    def _levels_in_order(self) -> Self:
        optics = self.lane_optics
        if optics is not None and not optics.sensitivity_dbm < optics.overload_dbm:
            levels = f"{optics.sensitivity_dbm:g} and {optics.overload_dbm:g}"
            raise ValueError(f"expected sensitivity_dbm below overload_dbm, found {levels}")
        if self.receives_nm is not None and not 0.0 < self.receives_nm[0] < self.receives_nm[1]:
            raise ValueError(f"expected receives_nm as [shortest, longest], found {list(self.receives_nm)}")
        return self


def _open(name: str, model: QsfpModel, link: Link | ModuleConnection, clock: Clock) -> Transponder:
    from lumion_hw.drivers.transponders.qsfp import QsfpTransponder

    device, pins = module_device(
        link, clock, name, None if model.pins is None else model.pins.wired(), model.read_bytes
    )
    return model.open_device(
        QsfpTransponder(
            device,
            clock,
            device=name,
            expected_vendor=model.vendor,
            expected_part_number=model.part_number,
            expected_serial=model.serial,
            accept_wrong_checksums=model.accept_wrong_checksums,
            max_power_class=model.max_power_class,
            hold_off_s=model.hold_off_s,
            pins=pins,
        )
    )


def _emulate(bench: EmulatedBench, name: str, model: QsfpModel) -> I2cBridge:
    from lumion_hw.emulator.transponders.qsfp.bench_light import LanesLight
    from lumion_hw.emulator.transponders.qsfp.module import QsfpModule
    from lumion_hw.emulator.transponders.qsfp.profiles import find_profile

    profile, optics = find_profile(model.profile), model.lane_optics
    if optics is not None:
        profile = replace(profile, launch_dbm=optics.launch_dbm)
    if optics is not None and optics.lanes_nm:
        profile = replace(profile, nominal_nm=optics.emits_nm, wavelengths_nm=optics.lanes_nm)
    module = QsfpModule(
        name,
        bench.clock,
        bench.rng(name),
        profile=profile,
        serial=model.emulated_serial(name),
        light=LanesLight(bench.world, name, profile.wavelengths_nm),
        warm=bench.warm,
    )
    return bench.on_i2c(name, module, module)


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import BUS_STUCK, MODULE_UNPLUGGED, calls_module, lasting, panel_fault
    from lumion_hw.emulator.transponders.qsfp.faults import FAULTS

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
        *(panel_fault(name, fault) for name, fault in FAULTS.items() if name != "unplug"),
    )


def _media_lanes(entry: Mapping[Any, Any]) -> int:
    return len(LANES) if entry.get("profile") in _PARALLEL else 1


KIND = DeviceKind(
    title="QSFP+ or QSFP28 module: SFF-8636",
    role=Role.TRANSPONDER,
    model=QsfpModel,
    open=_open,
    module_connections=True,
    emulate=_emulate,
    baud=9600,
    wire="pty",
    faults=_faults,
    media_lanes=_media_lanes,
)
