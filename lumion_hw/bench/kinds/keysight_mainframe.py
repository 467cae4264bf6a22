"""``keysight-816x`` and ``keysight-laser``: power sensors and lasers of Keysight mainframes, and the N7776C laser.

Sensors and laser of one mainframe are two devices in the bench file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from lumion_hw.bench.file.checks import BenchData, Check, Path, Uses, mapping, trigger_check
from lumion_hw.bench.file.devices import DeviceModel, TriggeredMeterModel, meter_faults
from lumion_hw.bench.file.fields import Name, Number, Pin, WholeNumber
from lumion_hw.bench.file.kind import DeviceKind, ScpiIdentity
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
    from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x
    from lumion_hw.emulator.optics.light import Light
    from lumion_hw.interfaces import PowerMeter, TunableLaser

MAINFRAME_SLOTS = {
    "8163A": range(1, 3),
    "8163B": range(1, 3),
    "8164A": range(5),
    "8164B": range(5),
    "8166A": range(1, 18),
    "8166B": range(1, 18),
}
"""Slots of Keysight mainframes. Slot 0 holds a tunable laser, the other slots hold power sensors."""
SENSOR_CHANNELS = {"81630B": 1, "81634B": 1, "81635A": 2, "81636B": 1}
"""Number of channels of each power sensor."""
DEFAULT_SENSORS = {1: "81635A", 2: "81635A"}
DEFAULT_LASER: Literal["81600B-200"] = "81600B-200"
_DEFAULT_MAINFRAME = "8164B"
MainframeModules = dict[
    WholeNumber,
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
"""Plugged-in module by slot number."""


def check_modules(modules: MainframeModules, model: str) -> None:
    """Raise ``ValueError`` if a mainframe cannot hold these modules."""
    slots = MAINFRAME_SLOTS[model]
    for slot, module in modules.items():
        if slot not in slots:
            raise ValueError(f"expected slots from {slots[0]} to {slots[-1]} of an {model}, found {slot}")
        if (slot == 0) is (module in SENSOR_CHANNELS):
            expected = "a laser, such as 81600B-200," if slot == 0 else "a power sensor, such as 81635A,"
            raise ValueError(f"expected {expected} in slot {slot}, found {module}")
    if not modules:
        raise ValueError("expected at least one module, found none")


class MainframeMeterModel(TriggeredMeterModel):
    """Power sensors such as the 81635A in a Keysight 8163, 8164 or 8166 mainframe (SCPI).

    Channels are numbered from 1 in the order of the mainframe's list. A laser in slot 0 is a separate device of kind
    keysight-laser.
    """

    kind: Literal["keysight-816x"]
    model: Literal["8163A", "8163B", "8164A", "8164B", "8166A", "8166B"] | None = Field(
        None, description="Expected mainframe."
    )
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    averaging_s: Number = Field(0.1, ge=1e-4, le=10.0, description="Averaging time of every channel.")
    wavelength_nm: Number = Field(1550.0, ge=450.0, le=1800.0, description="Wavelength of every channel.")
    modules: MainframeModules | None = Field(
        None,
        description="Emulated modules by slot; a real mainframe reports its modules. By default an 81635A in slots 1 "
        "and 2, and a laser in slot 0 if a keysight-laser names this mainframe.",
    )

    @model_validator(mode="after")
    def _modules_fit(self) -> Self:
        if self.modules is not None:
            check_modules(self.modules, self.model or _DEFAULT_MAINFRAME)
            if not any(module in SENSOR_CHANNELS for module in self.modules.values()):
                raise ValueError(
                    "expected at least one power sensor; a mainframe with a laser only is of kind keysight-laser"
                )
        return self


class KeysightLaserModel(DeviceModel):
    """Keysight N7776C tunable laser, or an 8164A/B mainframe with a laser in slot 0 (SCPI)."""

    kind: Literal["keysight-laser"]
    model: Literal["8164A", "8164B", "N7776C"] | None = Field(None, description="Expected model.")
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    pin: Pin | None = Field(
        None, description="Number that unlocks the laser; without it, opening a locked laser fails."
    )
    mainframe: Name | None = Field(
        None,
        description="Device of kind keysight-816x that has this laser in slot 0. The address and modules of the "
        "mainframe are used, and the emulator shows both as one instrument.",
    )
    modules: MainframeModules | None = Field(
        None, description="Emulated modules of an 8164 by slot; by default an 81600B-200 in slot 0."
    )

    @property
    def container(self) -> str | None:
        """Name of the mainframe that contains this laser."""
        return self.mainframe

    @model_validator(mode="after")
    def _mainframe_fits(self) -> Self:
        if self.mainframe is not None:
            for key in ("address", "serial", "modules"):
                if getattr(self, key) is not None:
                    raise ValueError(
                        f"expected either the key mainframe or {key}, found both: the {key} of the mainframe is used"
                    )
        if (self.modules is not None or self.mainframe is not None) and self.model == "N7776C":
            raise ValueError("expected model 8164A or 8164B for the keys mainframe and modules, found N7776C")
        if self.modules is not None:
            check_modules(self.modules, self.model or _DEFAULT_MAINFRAME)
            if 0 not in self.modules:
                raise ValueError("expected a laser in slot 0, found none")
        return self


def _channels(device: Mapping[Any, Any]) -> tuple[int, str] | None:
    if "modules" not in device:
        return None
    sensors = [
        SENSOR_CHANNELS.get(module, 0) for module in mapping(device["modules"]).values() if isinstance(module, str)
    ]
    return sum(sensors), "keysight-816x"


def _check_laser(bench: BenchData, name: str) -> Iterator[Check]:
    device, path = bench.devices[name], ("devices", name, "mainframe")
    mainframe = device.get("mainframe")
    if not isinstance(mainframe, str):
        return
    yield from bench.reference(path, mainframe, "keysight-816x")
    holder = bench.devices.get(mainframe, {})
    expected, actual = device.get("model") or _DEFAULT_MAINFRAME, holder.get("model") or _DEFAULT_MAINFRAME
    if holder.get("kind") == "keysight-816x" and "model" in device and "model" in holder and expected != actual:
        message = f"expected the model of the mainframe, {actual}, found {expected}"
        yield Check(("devices", name, "model"), message, ("devices", mainframe, "model"))
    elif isinstance(actual, str) and not actual.startswith("8164"):
        message = f"expected an 8164A or 8164B, found {mainframe!r}, an {actual}, which has no slot 0"
        yield Check(path, message, ("devices", mainframe))
    first = next(
        other
        for other, keys in bench.devices.items()
        if keys.get("kind") == "keysight-laser" and keys.get("mainframe") == mainframe
    )
    held: Path = ("devices", first, "mainframe")
    yield from Uses({mainframe: held}).claim(mainframe, path, f"slot 0 of {mainframe!r}")


def _open_meter(name: str, model: MainframeMeterModel, link: Link, clock: Clock) -> PowerMeter:
    from lumion_hw.drivers.meters.keysight_816x import Keysight816x

    return model.open_device(
        Keysight816x(link, clock, device=name, expected_model=model.model, expected_serial=model.serial)
    )


def _open_laser(name: str, model: KeysightLaserModel, link: Link, clock: Clock) -> TunableLaser:
    from lumion_hw.drivers.lasers.keysight_laser import KeysightLaser

    return model.open_device(
        KeysightLaser(link, clock, device=name, expected_model=model.model, expected_serial=model.serial, pin=model.pin)
    )


def _emulate_meter(bench: EmulatedBench, name: str, model: MainframeMeterModel) -> EmulatedKeysight816x:
    modules: dict[int, str] = dict(model.modules or DEFAULT_SENSORS)
    laser = next((device.name for device in bench.spec.devices if device.container == name), None)
    if laser is not None:
        modules.setdefault(0, DEFAULT_LASER)
    mainframe = _mainframe(bench, name, model, modules, laser or name)
    bench.trigger_cable(model.triggered_by, mainframe.hardware_trigger)
    return mainframe


def _emulate_laser(
    bench: EmulatedBench, name: str, model: KeysightLaserModel
) -> EmulatedKeysight816x | EmulatedKeysightLaser:
    if model.modules is not None or model.model in ("8164A", "8164B"):
        return _mainframe(bench, name, model, dict(model.modules or {0: DEFAULT_LASER}), name)
    from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser

    laser = EmulatedKeysightLaser(
        name,
        bench.clock,
        bench.rng(name),
        serial=model.emulated_serial(name),
        model=model.model or "N7776C",
        on_triggers=bench.trigger_output(name),
        emit=bench.launch(name),
    )
    bench.add_swept_laser(name, laser.advance, laser.light_at)
    return laser


def _mainframe(
    bench: EmulatedBench,
    name: str,
    model: MainframeMeterModel | KeysightLaserModel,
    modules: Mapping[int, str],
    laser: str,
) -> EmulatedKeysight816x:
    from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x, sensor_ports

    channels = {port: number for number, port in enumerate(sensor_ports(modules), start=1)}

    def light(slot: int, channel: int, at_s: float) -> Light:
        return bench.world.meter_light_at(name, channels[slot, channel], at_s)

    mainframe = EmulatedKeysight816x(
        name,
        bench.clock,
        bench.rng(name),
        light,
        serial=model.emulated_serial(name),
        model=model.model or _DEFAULT_MAINFRAME,
        modules=modules,
        on_triggers=bench.trigger_output(laser),
        emit=bench.launch(laser),
    )
    if mainframe.laser is not None:
        bench.add_swept_laser(laser, mainframe.advance, mainframe.light_at)
    return mainframe


METER = DeviceKind(
    title="power sensors in a Keysight 8163, 8164 or 8166",
    role=Role.METER,
    model=MainframeMeterModel,
    open=_open_meter,
    emulate=_emulate_meter,
    hislip=True,
    scpi=ScpiIdentity(
        "keysight|agilent|hewlett", "816[346][AB]$", names_model=True
    ),  # the identity does not show whether a laser is in slot 0
    faults=meter_faults,
    channels=_channels,
    check=trigger_check,
)
LASER = DeviceKind(
    title="Keysight N7776C, or 8164A/B with a laser in slot 0",
    role=Role.LASER,
    model=KeysightLaserModel,
    open=_open_laser,
    emulate=_emulate_laser,
    hislip=True,
    scpi=ScpiIdentity("keysight|agilent", "N7776C$", names_model=True),
    check=_check_laser,
)
