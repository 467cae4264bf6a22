"""The devices a bench file can name: one model per ``kind``, units in the key names, limits in the model."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from lumion_hw.bench.fields import Address, Name, Number, Pin, Port, QontrolModule, Serial, StrictModel, Whole
from lumion_hw.bench.module_ways import PIN_SCHEMES, checked_module_address

MESH_KINDS = ("lumion-mesh", "qontrol-q8", "smartlight-line-server")
"""Kinds that can be the controller of a mesh."""
METER_KINDS = ("keysight-n77xx", "keysight-816x", "thorlabs-pm", "santec-mpm")
"""Kinds that are power meters."""
LASER_KINDS = ("itla-laser", "keysight-laser", "santec-tsl")
"""Kinds that are tunable lasers."""
MODULE_KINDS = ("sfp-8472", "cmis")
"""Kinds that are pluggable modules."""
POLARIZATION_KINDS = ("oz-epc04", "thorlabs-mpc")
"""Kinds that are polarization controllers: settings go in."""
OPTIMIZER_KINDS = ("keysight-n7785c",)
"""Kinds that improve the polarization by themselves: what it is worth goes in."""
POLARIMETER_KINDS = ("novoptel-pm1000",)
"""Kinds that are polarimeters."""
DEVICE_KINDS = (
    *MESH_KINDS,
    *METER_KINDS,
    *LASER_KINDS,
    *MODULE_KINDS,
    *POLARIZATION_KINDS,
    *OPTIMIZER_KINDS,
    *POLARIMETER_KINDS,
)
_WITH_PINS = tuple(f"{scheme}://" for scheme in PIN_SCHEMES)
N77XX_CHANNELS = {"N7744A": 4, "N7745A": 8, "N7744C": 4, "N7745C": 8}
N_CHANNELS = {**N77XX_CHANNELS, "thorlabs-pm": 1}
"""Channels of a meter by its model or kind, where the file tells them."""


MAINFRAME_SLOTS = {
    "8163A": range(1, 3),
    "8163B": range(1, 3),
    "8164A": range(5),
    "8164B": range(5),
    "8166A": range(1, 18),
    "8166B": range(1, 18),
}
"""Slots of Keysight mainframes; slot 0 takes a tunable laser and nothing else does."""
SENSOR_CHANNELS = {"81630B": 1, "81634B": 1, "81635A": 2, "81636B": 1}
"""Channels of the power sensors that a mainframe can be emulated with."""
DEFAULT_SENSORS = {1: "81635A", 2: "81635A"}
DEFAULT_LASER = "81600B-200"
MainframeModules = dict[
    Whole,
    Literal[
        "81630B",
        "81634B",
        "81635A",
        "81636B",
        "81600B-130",
        "81600B-140",
        "81600B-150",
        "81600B-160",
        "81600B-200",
    ],
]
"""Slot: what is plugged in."""


def check_modules(modules: MainframeModules, model: str) -> None:
    """Raise ``ValueError`` for modules that a mainframe cannot hold."""
    slots = MAINFRAME_SLOTS[model]
    for slot, module in modules.items():
        if slot not in slots:
            raise ValueError(f"expected slots from {slots[0]} to {slots[-1]} of an {model}, found {slot}")
        if (slot == 0) is (module in SENSOR_CHANNELS):
            wanted = "a laser, such as 81600B-200," if slot == 0 else "a power sensor, such as 81635A,"
            raise ValueError(f"expected {wanted} in slot {slot}, found {module}")
    if not modules:
        raise ValueError("expected at least one module, found none")


def channels_of_module(module: str) -> int:
    """Return the number of channels of a Qontrol module: the digits in its type name."""
    digits = re.search(r"[0-9]+", module.partition("-")[0])
    return int(digits[0]) if digits else 0


class DeviceModel(StrictModel):
    """What every device has."""

    address: Address | None = Field(
        None,
        description="Where the real device is reached, such as tcp://host:port or serial:///dev/ttyUSB0?baud=115200; "
        "not used when emulated.",
    )
    emulated_port: Port | None = Field(
        None, description="TCP port on which `lumion emulate` serves it, in place of any free one or a pty."
    )
    emulated_hislip_port: Port | None = Field(
        None,
        description="Port on which `lumion emulate` serves it by HiSLIP, if it is a SCPI instrument; 4880 is usual.",
    )


class HeaterDriverModel(DeviceModel):
    """What every controller of heater currents is told of its heaters."""

    heater_max_ma: Number = Field(2.5, gt=0.0, le=1000.0, description="Largest current per heater.")
    heater_ohm: Number = Field(1000.0, ge=1.0, le=65535.0, description="Nominal heater resistance, for power sums.")
    total_power_mw: Number = Field(1000.0, gt=0.0, le=4e6, description="Cap on the power of all heaters together.")


class MeshControllerModel(HeaterDriverModel):
    """The controller of the mesh heaters, speaking the protocol of ``firmware_protocol``."""

    kind: Literal["lumion-mesh"]
    serial: Serial | None = Field(None, description="Expected serial number; another one is refused at opening.")
    watchdog_s: Number = Field(2.0, ge=0.1, le=60.0, description="Host silence after which all heaters go off.")
    monitor_responsivity_a_per_w: Number = Field(
        0.8, gt=0.0, le=2.0, description="Nominal responsivity of the port photodiodes, photocurrent to power."
    )


class QontrolModel(HeaterDriverModel):
    """A chain of Qontrol current sources (Q8iv family) on one serial line, 115 200 baud.

    Neither atomic nor guarded by a watchdog: put the supply on an interlock. It has no photodiodes; power meters on the
    taps of the mesh's outputs are the eyes of a calibration.
    """

    kind: Literal["qontrol-q8"]
    modules: tuple[QontrolModule, ...] | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="Expected modules in the order of the chain, such as Q8iv-0001; others are refused at opening.",
    )
    mode: Literal["binary", "ascii"] = Field("binary", description="ascii can be read on a serial monitor.")
    compliance_v: Number | None = Field(
        None, gt=0.0, le=100.0, description="Voltage limit; by default 1.5 times what a heater needs at heater_max_ma."
    )
    readback_tolerance_ma: Number = Field(
        0.1, gt=0.0, le=10.0, description="Largest difference between a current set and measured."
    )
    idle_off_s: Number | None = Field(
        None, ge=0.1, le=86400.0, description="Heaters go off when this process makes no call for so long."
    )

    @property
    def n_channels(self) -> int | None:
        """Number of channels of the modules named; ``None`` if none are."""
        return None if self.modules is None else sum(map(channels_of_module, self.modules))


class LineServerModel(DeviceModel):
    """The line-oriented control server of the SmartLight prototype. It takes states of PUCs and no heater currents.

    A mesh behind it can be set, but neither calibrated nor given circuits. It cannot be asked who it is.
    """

    kind: Literal["smartlight-line-server"]
    n_pucs: Whole = Field(72, ge=1, le=72, description="PUCs, numbered from 0.")

    @field_validator("address")
    @classmethod
    def _on_tcp(cls, address: str | None) -> str | None:
        if address is not None and not address.startswith("tcp://"):
            raise ValueError(f"expected an address of the form tcp://host:65432, found {address!r}")
        return address


class PowerMeterModel(DeviceModel):
    """Keysight N7744 or N7745 multiport power meter (SCPI)."""

    kind: Literal["keysight-n77xx"]
    model: Literal["N7744A", "N7745A", "N7744C", "N7745C"] = Field("N7745A", description="Expected model.")
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")
    averaging_s: Number = Field(0.01, ge=1e-6, le=10.0, description="Averaging time of every channel.")
    wavelength_nm: Number = Field(1550.0, ge=1250.0, le=1650.0, description="Wavelength of every channel.")

    @property
    def n_channels(self) -> int:
        """Number of channels of this model, numbered from 1."""
        return N77XX_CHANNELS[self.model]


class MainframeMeterModel(DeviceModel):
    """Power sensors such as the 81635A in a Keysight 8163, 8164 or 8166 mainframe (SCPI).

    Channels are numbered from 1 in the order in which the mainframe lists its heads. A laser in slot 0 is a device of
    its own, of kind keysight-laser.
    """

    kind: Literal["keysight-816x"]
    model: Literal["8163A", "8163B", "8164A", "8164B", "8166A", "8166B"] | None = Field(
        None, description="Expected mainframe."
    )
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")
    averaging_s: Number = Field(0.1, ge=1e-4, le=10.0, description="Averaging time of every channel.")
    wavelength_nm: Number = Field(1550.0, ge=450.0, le=1800.0, description="Wavelength of every channel.")
    modules: MainframeModules | None = Field(
        None,
        description="Slot: module, when it is emulated; a real one says it itself. By default an 81635A in slots 1 "
        "and 2, and a laser in slot 0 if a keysight-laser names this mainframe.",
    )

    @model_validator(mode="after")
    def _modules_fit(self) -> Self:
        if self.modules is not None:
            check_modules(self.modules, self.model or "8164B")
            if not any(module in SENSOR_CHANNELS for module in self.modules.values()):
                raise ValueError("expected at least one power sensor; a laser alone is a device of kind keysight-laser")
        return self


class ThorlabsMeterModel(DeviceModel):
    """Thorlabs PM100D, PM100A, PM100USB, PM400, PM101 or PM160 power meter (SCPI)."""

    kind: Literal["thorlabs-pm"]
    model: Literal["PM100D", "PM100A", "PM100USB", "PM400", "PM101", "PM160"] | None = Field(
        None, description="Expected model."
    )
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")
    averaging_s: Number = Field(0.03, ge=1e-5, le=60.0, description="Averaging time, rounded up to whole samples.")
    sample_s: Number = Field(3e-3, ge=1e-5, le=1.0, description="Time of one sample of this model.")
    wavelength_nm: Number = Field(1550.0, ge=185.0, le=25000.0, description="Wavelength, which the sensor has to know.")


class SantecMeterModel(DeviceModel):
    """Santec MPM-210 or MPM-210H power meter mainframe; four channels for each module plugged in, from 1."""

    kind: Literal["santec-mpm"]
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")
    averaging_s: Number = Field(0.01, ge=1e-5, le=10.0, description="Averaging time of all channels.")
    wavelength_nm: Number = Field(1550.0, ge=1250.0, le=1630.0, description="Wavelength of every channel.")


class ItlaModel(DeviceModel):
    """Integrable tunable laser after OIF-ITLA-MSA, on a serial line of 9600 baud unless it was told otherwise."""

    kind: Literal["itla-laser"]
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")


class KeysightLaserModel(DeviceModel):
    """Keysight N7776C tunable laser, or an 8164A/B mainframe with a laser in slot 0 (SCPI)."""

    kind: Literal["keysight-laser"]
    model: Literal["8164A", "8164B", "N7776C"] | None = Field(None, description="Expected model.")
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")
    pin: Pin | None = Field(None, description="Number that unlocks the laser; without one a locked laser is refused.")
    mainframe: Name | None = Field(
        None,
        description="Device of kind keysight-816x in whose slot 0 it is; its address is used, and what is said of "
        "modules there. Emulated they are one instrument.",
    )
    modules: MainframeModules | None = Field(
        None, description="Slot: module of an 8164, when it is emulated; by default an 81600B-200 in slot 0."
    )

    @model_validator(mode="after")
    def _mainframe_fits(self) -> Self:
        if self.mainframe is not None:
            for key in ("address", "serial", "modules"):
                if getattr(self, key) is not None:
                    raise ValueError(f"expected either mainframe or {key}, found both: it is that of the mainframe")
        if (self.modules is not None or self.mainframe is not None) and self.model == "N7776C":
            raise ValueError("expected model 8164A or 8164B with mainframe or modules, found N7776C")
        if self.modules is not None:
            check_modules(self.modules, self.model or "8164B")
            if 0 not in self.modules:
                raise ValueError("expected a laser in slot 0, found none")
        return self


class SantecLaserModel(DeviceModel):
    """Santec TSL-510, TSL-550, TSL-570 or TSL-710 tunable laser. All but the TSL-570 need their wavelengths."""

    kind: Literal["santec-tsl"]
    model: Literal["TSL-510", "TSL-550", "TSL-570", "TSL-710"] | None = Field(None, description="Expected model.")
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")
    wavelength_min_nm: Number | None = Field(None, ge=400.0, le=3000.0, description="Shortest wavelength.")
    wavelength_max_nm: Number | None = Field(None, ge=400.0, le=3000.0, description="Longest wavelength.")
    power_min_dbm: Number | None = Field(None, ge=-60.0, le=30.0, description="Lowest output power.")
    power_max_dbm: Number | None = Field(None, ge=-60.0, le=30.0, description="Highest output power.")

    @model_validator(mode="after")
    def _limits_in_pairs(self) -> Self:
        for low, high, what in (
            (self.wavelength_min_nm, self.wavelength_max_nm, "wavelength_min_nm below wavelength_max_nm"),
            (self.power_min_dbm, self.power_max_dbm, "power_min_dbm below power_max_dbm"),
        ):
            both_or_none = (low is None) == (high is None)
            if not both_or_none or (low is not None and high is not None and not low < high):
                raise ValueError(f"expected {what}, both or none; found {low} and {high}")
        return self

    @model_validator(mode="after")
    def _range_of_older_lasers(self) -> Self:
        if self.model not in (None, "TSL-570") and self.wavelength_min_nm is None:
            raise ValueError(
                f"expected wavelength_min_nm and wavelength_max_nm, for a {self.model} does not tell its range; "
                "found neither"
            )
        return self


class PluggableModel(DeviceModel):
    """A pluggable module: behind an SC18IM700 serial-to-I2C bridge, an I2C adapter, or a memory file."""

    address: Annotated[str, AfterValidator(checked_module_address)] | None = Field(
        None,
        description="Where the module is reached: i2c://1, ftdi://ftdi:232h/1?clock_khz=100, mcp2221://0, "
        "optoe:///sys/.../eeprom, or tcp:// and serial:// of a bridge; not used when emulated.",
    )


class SfpModel(PluggableModel):
    """An SFP+ module read over SFF-8472. Defaults are those of 10GBASE-ER (transponders.md 8.6)."""

    kind: Literal["sfp-8472"]
    serial: Serial | None = Field(None, description="Expected serial number; another one is refused at opening.")
    accept_wrong_checksums: bool = Field(
        False, description="Warn of a wrong CC_EXT or CC_DMI in the module's memory instead of refusing the module."
    )
    wavelength_nm: Number = Field(1550.0, ge=770.0, le=1700.0, description="Nominal wavelength.")
    tx_power_dbm: Number = Field(1.0, ge=-20.0, le=10.0, description="Launch power that link budgets start from.")
    sensitivity_dbm: Number = Field(-15.8, ge=-40.0, le=10.0, description="Least received power that counts as a link.")
    overload_dbm: Number = Field(-1.0, ge=-40.0, le=10.0, description="Largest received power that counts as a link.")
    los_assert_dbm: Number = Field(-21.0, ge=-40.0, le=10.0, description="Power below which the module reports LOS.")
    los_release_dbm: Number = Field(-19.5, ge=-40.0, le=10.0, description="Power above which the module ends LOS.")

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> Self:
        if not self.sensitivity_dbm < self.overload_dbm:
            raise ValueError(
                f"expected sensitivity_dbm below overload_dbm, found {self.sensitivity_dbm:g} and {self.overload_dbm:g}"
            )
        if not self.los_assert_dbm < self.los_release_dbm:
            raise ValueError(
                "expected los_assert_dbm below los_release_dbm, "
                f"found {self.los_assert_dbm:g} and {self.los_release_dbm:g}"
            )
        return self


class PinsModel(StrictModel):
    """Pins of an adapter that are wired to the low-speed signals of a module's socket."""

    reset_l: Whole | None = Field(None, ge=0, le=15, description="Pin on ResetL: reset() then pulls it.")
    lp_mode: Whole | None = Field(None, ge=0, le=15, description="Pin on LPMode: power_up() and power_down() drive it.")
    int_l: Whole | None = Field(None, ge=0, le=15, description="Pin on IntL: the module asks for attention.")
    mod_prs_l: Whole | None = Field(None, ge=0, le=15, description="Pin on ModPrsL: a module is in the socket.")

    def wired(self) -> dict[str, int]:
        """Return the pins that are given, by signal."""
        return {signal: pin for signal, pin in self if pin is not None}

    @model_validator(mode="after")
    def _each_its_own(self) -> Self:
        pins = list(self.wired().values())
        if len(set(pins)) < len(pins):
            raise ValueError(f"expected a pin of its own for every signal, found {self.wired()}")
        return self


class CmisModel(PluggableModel):
    """A CMIS module (QSFP-DD, OSFP ...), coherent or not."""

    kind: Literal["cmis"]
    serial: Serial | None = Field(None, description="Expected serial number; another one is refused at opening.")
    vendor: str | None = Field(None, description="Expected vendor name.")
    part_number: str | None = Field(None, description="Expected part number.")
    media_lane: Whole = Field(1, ge=1, le=8, description="Media lane that carries the light.")
    profile: Literal["400zr", "zr-plus-high-power", "400g-dr4"] = Field(
        "400zr", description="What the module is when it is emulated; a real one says it itself."
    )
    hold_off_s: Number = Field(0.0, ge=0.0, le=1.0, description="Pause after writes and page changes, for slow boards.")
    power_request: Literal["software", "pin"] = Field(
        "software", description="Who asks for low power: the module's own bit, or the pin of its socket."
    )
    pins: PinsModel | None = Field(
        None, description="Pins of an ftdi:// (3 to 15) or mcp2221:// (0 to 3) adapter on signals of the socket."
    )

    @model_validator(mode="after")
    def _pins_of_an_adapter(self) -> Self:
        if self.pins is not None and self.address is not None and not self.address.startswith(_WITH_PINS):
            raise ValueError(f"expected an adapter with pins (ftdi:// or mcp2221://) as address, found {self.address}")
        return self


class PolarizationControllerModel(DeviceModel):
    """OZ Optics EPC04 polarization controller: four fibre squeezers behind a serial line.

    How it words its serial number is not published, so the file can expect none.
    """

    kind: Literal["oz-epc04"]
    settle_s: Number = Field(0.001, ge=0.0, le=10.0, description="Time after a set until the light follows.")


class PaddlesModel(DeviceModel):
    """Thorlabs MPC220 or MPC320: two or three motorised fibre paddles, on a serial line of 115 200 baud.

    Paddles that have not found their home since they were switched on do so before their first move.
    """

    kind: Literal["thorlabs-mpc"]
    model: Literal["MPC220", "MPC320"] | None = Field(
        None, description="Expected model; by default as many paddles as answer."
    )
    velocity_percent: Whole | None = Field(
        None, ge=10, le=100, description="Velocity, part of 400 degrees per second; by default as it is."
    )
    settle_s: Number = Field(0.05, ge=0.0, le=10.0, description="Time after a move until the light is still.")


class StabilizerModel(DeviceModel):
    """Keysight N7785C polarization stabilizer with feedback from outside (SCPI)."""

    kind: Literal["keysight-n7785c"]
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")
    settle_s: Number = Field(0.05, ge=0.0, le=10.0, description="Time after a step until the light follows.")


class PolarimeterModel(DeviceModel):
    """Novoptel PM1000 polarimeter: over LAN (tcp, port 5025) or USB 2 (serial, 230 400 baud)."""

    kind: Literal["novoptel-pm1000"]
    serial: str | None = Field(None, description="Expected serial number; another one is refused at opening.")
    averaging_s: Number = Field(1e-3, ge=1e-8, le=0.0104, description="Averaging time; the nearest it has is set.")
    frequency_thz: Number | None = Field(
        None, ge=150.0, le=400.0, description="Optical frequency it is calibrated for; by default as it is."
    )


Device = Annotated[
    MeshControllerModel
    | QontrolModel
    | LineServerModel
    | PowerMeterModel
    | MainframeMeterModel
    | ThorlabsMeterModel
    | SantecMeterModel
    | ItlaModel
    | KeysightLaserModel
    | SantecLaserModel
    | SfpModel
    | CmisModel
    | PolarizationControllerModel
    | PaddlesModel
    | StabilizerModel
    | PolarimeterModel,
    Field(discriminator="kind"),
]
"""Any device, told apart by ``kind``."""
