"""Which driver opens which kind of device: one row per kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lumion_hw.bench.devices import (
    CmisModel,
    DeviceModel,
    HeaterDriverModel,
    ItlaModel,
    KeysightLaserModel,
    LineServerModel,
    MainframeMeterModel,
    MeshControllerModel,
    PaddlesModel,
    PolarimeterModel,
    PolarizationControllerModel,
    PowerMeterModel,
    QontrolModel,
    SantecLaserModel,
    SantecMeterModel,
    SfpModel,
    StabilizerModel,
    ThorlabsMeterModel,
)
from lumion_hw.bench.module_ways import ModuleWay
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import (
    ControllerLimits,
    MeshController,
    MeshStates,
    Polarimeter,
    PolarizationController,
    PolarizationOptimizer,
    PowerMeter,
    Transponder,
    TunableLaser,
)
from lumion_hw.links.address import serial_baud
from lumion_hw.links.base import Link

_MODULE_RETRY_S = 0.1
"""A module is silent for up to 80 ms after a write (SFF-8472); longer silence means that it is gone."""

OpenDevice = (
    MeshController
    | MeshStates
    | PowerMeter
    | Transponder
    | PolarizationController
    | PolarizationOptimizer
    | Polarimeter
    | TunableLaser
)
AnyMeterModel = PowerMeterModel | MainframeMeterModel | ThorlabsMeterModel | SantecMeterModel


def _limits(model: HeaterDriverModel, n_heaters: int, watchdog_s: float = 0.0) -> ControllerLimits:
    """Return the limits of the bench file, the same for every heater."""
    return ControllerLimits(
        heater_max_ma=np.full(n_heaters, model.heater_max_ma),
        heater_ohm=np.full(n_heaters, model.heater_ohm),
        total_power_mw=model.total_power_mw,
        watchdog_s=watchdog_s,
    )


def _open_mesh(name: str, model: MeshControllerModel, link: Link, clock: Clock) -> MeshController:
    from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController

    # On a UART every byte takes its time, and time-outs have to allow for it.
    baud = serial_baud(link.name)
    controller = LumionMeshController(link, clock, device=name, expected_serial=model.serial, baud=baud)
    controller.open()
    try:
        controller.configure(_limits(model, controller.info.n_heaters, model.watchdog_s))
    except BaseException:
        controller.close()
        raise
    return controller


def _open_qontrol(name: str, model: QontrolModel, link: Link, clock: Clock) -> MeshController:
    from lumion_hw.drivers.mesh.qontrol.controller import QontrolController

    controller = QontrolController(
        link,
        clock,
        device=name,
        expected_serial=None if model.modules is None else ",".join(model.modules),
        mode=model.mode,
        compliance_v=model.compliance_v,
        tolerance_ma=model.readback_tolerance_ma,
        idle_off_s=model.idle_off_s,
    )
    controller.open()
    try:
        n_heaters = controller.info.n_heaters
        controller.program(np.zeros(n_heaters))  # without a watchdog, currents of a host that died are still flowing
        controller.configure(_limits(model, n_heaters))
    except BaseException:
        controller.close()
        raise
    return controller


def _open_line_server(name: str, model: LineServerModel, link: Link, clock: Clock) -> MeshStates:
    from lumion_hw.drivers.mesh.line_server import LineServerMesh

    return LineServerMesh(lambda: link, clock, device=name, n_pucs=model.n_pucs)


def _set_up(meter: PowerMeter, model: AnyMeterModel) -> PowerMeter:
    """Let every channel range automatically, at the wavelength and averaging time of the file."""
    try:
        for channel in meter.channels:
            meter.set_range_dbm(channel, None)
            meter.set_wavelength_nm(channel, model.wavelength_nm)
            meter.set_averaging_s(channel, model.averaging_s)
    except BaseException:
        meter.close()
        raise
    return meter


def _open_n77xx(name: str, model: PowerMeterModel, link: Link, clock: Clock) -> PowerMeter:
    from lumion_hw.drivers.meters.keysight_n77xx import KeysightN77xx

    meter = KeysightN77xx(link, clock, device=name, expected_model=model.model, expected_serial=model.serial)
    meter.open()
    return _set_up(meter, model)


def _open_816x(name: str, model: MainframeMeterModel, link: Link, clock: Clock) -> PowerMeter:
    from lumion_hw.drivers.meters.keysight_816x import Keysight816x

    meter = Keysight816x(link, clock, device=name, expected_model=model.model, expected_serial=model.serial)
    meter.open()
    return _set_up(meter, model)


def _open_thorlabs(name: str, model: ThorlabsMeterModel, link: Link, clock: Clock) -> PowerMeter:
    from lumion_hw.drivers.meters.thorlabs_pm import ThorlabsPm

    meter = ThorlabsPm(
        link,
        clock,
        device=name,
        expected_model=model.model,
        expected_serial=model.serial,
        sample_s=model.sample_s,
    )
    meter.open()
    return _set_up(meter, model)


def _open_santec_mpm(name: str, model: SantecMeterModel, link: Link, clock: Clock) -> PowerMeter:
    from lumion_hw.drivers.meters.santec_mpm import SantecMpm

    meter = SantecMpm(link, clock, device=name, expected_serial=model.serial)
    meter.open()
    return _set_up(meter, model)


def _open_itla(name: str, model: ItlaModel, link: Link, clock: Clock) -> TunableLaser:
    from lumion_hw.drivers.lasers.itla import ItlaLaser

    laser = ItlaLaser(link, clock, device=name, expected_serial=model.serial)
    laser.open()
    return laser


def _open_keysight_laser(name: str, model: KeysightLaserModel, link: Link, clock: Clock) -> TunableLaser:
    from lumion_hw.drivers.lasers.keysight_laser import KeysightLaser

    laser = KeysightLaser(
        link, clock, device=name, expected_model=model.model, expected_serial=model.serial, pin=model.pin
    )
    laser.open()
    return laser


def _open_santec_tsl(name: str, model: SantecLaserModel, link: Link, clock: Clock) -> TunableLaser:
    from lumion_hw.drivers.lasers.santec_tsl import SantecTsl

    laser = SantecTsl(
        link,
        clock,
        device=name,
        expected_model=model.model,
        expected_serial=model.serial,
        limits_nm=_pair(model.wavelength_min_nm, model.wavelength_max_nm),
        limits_dbm=_pair(model.power_min_dbm, model.power_max_dbm),
    )
    laser.open()
    return laser


def _pair(low: float | None, high: float | None) -> tuple[float, float] | None:
    """Return two limits of a file, which has both or none."""
    return None if low is None or high is None else (low, high)


def _open_sfp(name: str, model: SfpModel, way: Link | ModuleWay, clock: Clock) -> Transponder:
    from lumion_hw.drivers.transponders.sfp import SfpTransponder
    from lumion_hw.sessions.module.sc18im700 import Sc18im700

    if isinstance(way, ModuleWay):
        registers = way.registers(clock, name)
    else:
        registers = Sc18im700(way, clock, device=name, retry_s=_MODULE_RETRY_S)
    module = SfpTransponder(
        registers,
        clock,
        device=name,
        expected_serial=model.serial,
        accept_wrong_checksums=model.accept_wrong_checksums,
    )
    module.open()
    return module


def _open_cmis(name: str, model: CmisModel, way: Link | ModuleWay, clock: Clock) -> Transponder:
    from lumion_hw.drivers.transponders.cmis import CmisTransponder
    from lumion_hw.sessions.module.paged_i2c import BridgedI2c
    from lumion_hw.sessions.module.sc18im700 import Sc18im700

    pins = None
    if isinstance(way, ModuleWay):
        device, pins = way.device(clock, name, None if model.pins is None else model.pins.wired())
    else:
        device = BridgedI2c(Sc18im700(way, clock, device=name, retry_s=_MODULE_RETRY_S))
    module = CmisTransponder(
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
    module.open()
    return module


def _open_polarization(
    name: str, model: PolarizationControllerModel, link: Link, clock: Clock
) -> PolarizationController:
    from lumion_hw.drivers.polarization.oz_epc04 import OzEpc04

    controller = OzEpc04(link, clock, device=name, settle_s=model.settle_s)
    controller.open()
    return controller


def _open_paddles(name: str, model: PaddlesModel, link: Link, clock: Clock) -> PolarizationController:
    from lumion_hw.drivers.polarization.thorlabs_mpc import ThorlabsMpc

    controller = ThorlabsMpc(
        link,
        clock,
        device=name,
        model=model.model,
        velocity_percent=model.velocity_percent,
        settle_s=model.settle_s,
    )
    controller.open()
    return controller


def _open_stabilizer(name: str, model: StabilizerModel, link: Link, clock: Clock) -> PolarizationOptimizer:
    from lumion_hw.drivers.polarization.keysight_n778x import KeysightN7785C

    stabilizer = KeysightN7785C(link, clock, device=name, expected_serial=model.serial, settle_s=model.settle_s)
    stabilizer.open()
    return stabilizer


def _open_polarimeter(name: str, model: PolarimeterModel, link: Link, clock: Clock) -> Polarimeter:
    from lumion_hw.drivers.polarization.novoptel_pm1000 import NovoptelPm1000

    on_a_line = serial_baud(link.name) is not None
    polarimeter = NovoptelPm1000(link, clock, device=name, serial_line=on_a_line, expected_serial=model.serial)
    polarimeter.open()
    try:
        polarimeter.set_averaging_s(model.averaging_s)
        if model.frequency_thz is not None:
            polarimeter.set_frequency_thz(model.frequency_thz)
    except BaseException:
        polarimeter.close()
        raise
    return polarimeter


_OPENERS: dict[type[DeviceModel], Callable[[str, Any, Any, Clock], OpenDevice]] = {
    MeshControllerModel: _open_mesh,
    QontrolModel: _open_qontrol,
    LineServerModel: _open_line_server,
    PowerMeterModel: _open_n77xx,
    MainframeMeterModel: _open_816x,
    ThorlabsMeterModel: _open_thorlabs,
    SantecMeterModel: _open_santec_mpm,
    ItlaModel: _open_itla,
    KeysightLaserModel: _open_keysight_laser,
    SantecLaserModel: _open_santec_tsl,
    SfpModel: _open_sfp,
    CmisModel: _open_cmis,
    PolarizationControllerModel: _open_polarization,
    PaddlesModel: _open_paddles,
    StabilizerModel: _open_stabilizer,
    PolarimeterModel: _open_polarimeter,
}


def open_device(name: str, model: DeviceModel, link: Link | ModuleWay, clock: Clock) -> OpenDevice:
    """Open, identify and set up one device.

    Args:
        name: Device name of the bench file.
        model: Its entry in the bench file.
        link: A link or another way to it, not yet open.
        clock: The bench's clock.

    Raises:
        ConfigError: No driver for this kind, or another device answered.
        LinkError: The device cannot be reached.
    """
    if type(model) not in _OPENERS:
        raise ConfigError(f"no driver for a {type(model).__name__}", device=name)
    if isinstance(link, ModuleWay) and not isinstance(model, CmisModel | SfpModel):
        raise ConfigError(
            "the way of a pluggable module leads to no other device",
            device=name,
            address=link.address,
            hint="Use tcp://, serial:// or visa://.",
        )
    return _OPENERS[type(model)](name, model, link, clock)
