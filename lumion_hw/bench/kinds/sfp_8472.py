"""``sfp-8472``: SFP+ modules read over SFF-8472."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from lumion_hw.bench.file.checks import BenchData, Check
from lumion_hw.bench.file.fields import Number, Serial
from lumion_hw.bench.file.kind import DeviceKind
from lumion_hw.bench.file.module_connection import ModuleConnection, PluggableModel, module_registers
from lumion_hw.bench.file.module_optics import ModuleFormat, ModuleOptics
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
    from lumion_hw.interfaces import Transponder


_WINDOWS_NM = ((840.0, 860.0), (1260.0, 1355.0), (1530.0, 1565.0))
"""Receiver wavelength ranges of 10GBASE-SR, -LR and -ER (IEEE 802.3, clause 52)."""
_WINDOW_NM = 10.0
"""Half width of the receiver range for modules at other wavelengths (assumed)."""
_MAX_SKEW_PS = 20.0
"""Largest delay in ps between two paths combined at a receiver: a fifth of a bit at 10 Gb/s (assumed)."""


class SfpModel(PluggableModel):
    """An SFP+ module read over SFF-8472. Defaults are those of 10GBASE-ER (IEEE 802.3, clause 52)."""

    kind: Literal["sfp-8472"]
    serial: Serial | None = Field(None, description="Expected serial number; opening fails if it differs.")
    accept_wrong_checksums: bool = Field(
        False,
        description="If CC_EXT or CC_DMI in the module's memory is wrong, log a warning instead of raising an error.",
    )
    wavelength_nm: Number = Field(1550.0, ge=770.0, le=1700.0, description="Nominal wavelength.")
    tx_power_dbm: Number = Field(1.0, ge=-20.0, le=10.0, description="Launch power for link budgets.")
    sensitivity_dbm: Number = Field(
        -15.8, ge=-40.0, le=10.0, description="Lowest received power at which a link works."
    )
    overload_dbm: Number = Field(-1.0, ge=-40.0, le=10.0, description="Highest received power at which a link works.")
    rate_gbps: Number = Field(10.3125, gt=0.0, le=1000.0, description="Bit rate of the optical signal, in Gb/s.")
    receives_nm: tuple[Number, Number] | None = Field(
        None,
        description="Shortest and longest wavelength received; by default the band of the nominal wavelength.",
    )
    los_assert_dbm: Number = Field(-21.0, ge=-40.0, le=10.0, description="Power below which the module reports LOS.")
    los_release_dbm: Number = Field(-19.5, ge=-40.0, le=10.0, description="Power above which the module clears LOS.")

    @property
    def nominal_nm(self) -> float:
        """Wavelength in the bench file."""
        return self.wavelength_nm

    @property
    def optics(self) -> ModuleOptics:
        """Optical data for the planning of circuits."""
        sent_nm = self.wavelength_nm
        accepted_nm = (sent_nm - _WINDOW_NM, sent_nm + _WINDOW_NM)
        window = next((window for window in _WINDOWS_NM if window[0] <= sent_nm <= window[1]), accepted_nm)
        return ModuleOptics(
            formats=(ModuleFormat("NRZ", self.rate_gbps),),
            polarizations=1,
            emits_nm=sent_nm,
            receives_nm=self.receives_nm or window,
            launch_dbm=self.tx_power_dbm,
            sensitivity_dbm=self.sensitivity_dbm,
            overload_dbm=self.overload_dbm,
            max_dgd_ps=_MAX_SKEW_PS,
        )

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> Self:
        if not self.sensitivity_dbm < self.overload_dbm:
            raise ValueError(
                f"expected sensitivity_dbm below overload_dbm, found {self.sensitivity_dbm:g} and {self.overload_dbm:g}"
            )
        if self.receives_nm is not None and not 0.0 < self.receives_nm[0] < self.receives_nm[1]:
            raise ValueError(f"expected receives_nm as [shortest, longest], found {list(self.receives_nm)}")
        if not self.los_assert_dbm < self.los_release_dbm:
            raise ValueError(
                "expected los_assert_dbm below los_release_dbm, "
                f"found {self.los_assert_dbm:g} and {self.los_release_dbm:g}"
            )
        return self


def _check(bench: BenchData, name: str) -> Iterator[Check]:
    """Check that both tributaries of a polarization splitter-rotator or combiner are wired.

    The light of a module has an unknown polarization; with one tributary, part of it would be lost.
    """
    for side, fibres in (("inputs", bench.inputs), ("outputs", bench.outputs)):
        bases = {fibre.get("tributary"): base for base, fibre in fibres if fibre.get("transponder") == name}
        if len({"x", "y"} & bases.keys()) == 1:
            (wired,) = {"x", "y"} & bases.keys()
            expected = f"expected tributary {'y' if wired == 'x' else 'x'} of {name!r} among wiring.{side} too, found"
            yield Check((*bases[wired], "tributary"), f"{expected} {wired} alone: part of the light would be lost")


def _open(name: str, model: SfpModel, link: Link | ModuleConnection, clock: Clock) -> Transponder:
    from lumion_hw.drivers.transponders.sfp import SfpTransponder

    return model.open_device(
        SfpTransponder(
            module_registers(link, clock, name, model.read_bytes),
            clock,
            device=name,
            expected_serial=model.serial,
            accept_wrong_checksums=model.accept_wrong_checksums,
        )
    )


def _emulate(bench: EmulatedBench, name: str, model: SfpModel) -> I2cBridge:
    from lumion_hw.emulator.transponders.sfp import SfpModule, SfpProfile

    module = SfpModule(
        name,
        bench.clock,
        bench.rng(name),
        emit_w=lambda power_w: bench.world.set_transmitter(name, power_w),
        rx_power_w=lambda: bench.world.received_w(name),
        serial=model.emulated_serial(name),
        profile=SfpProfile(
            launch_dbm=model.tx_power_dbm,
            los_assert_dbm=model.los_assert_dbm,
            los_release_dbm=model.los_release_dbm,
        ),
        warm=bench.warm,
    )
    return bench.on_i2c(name, module, module)


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import BUS_STUCK, calls_module, lasting
    from lumion_hw.emulator.faults.fault_table import MODULE_DEAD, ScriptedFault

    return (
        ScriptedFault(
            MODULE_DEAD,
            "the module loses its supply: it is dark and does not acknowledge",
            begin=calls_module("power_off"),
            end=calls_module("power_on"),
        ),
        BUS_STUCK,
        ScriptedFault(
            "laser_broken",
            "the laser fails permanently: it is dark, and TX_FAULT latches again after each reset",
            begin=lambda target: target.module.break_laser(persistent=True),
            end=calls_module("repair_laser"),
        ),
        lasting(
            "tx_disable_pin",
            "the transmitter-disable pin is asserted",
            calls_module,
            "set_tx_disable_pin",
        ),
    )


KIND = DeviceKind(
    title="SFP+ module: SFF-8472",
    role=Role.TRANSPONDER,
    model=SfpModel,
    open=_open,
    module_connections=True,
    emulate=_emulate,
    baud=9600,
    wire="pty",
    faults=_faults,
    check=_check,
)
