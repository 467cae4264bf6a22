"""From a bench file to the emulated bench of the same devices: the one place where the two meet."""

from __future__ import annotations

from lumion_hw.bench.devices import (
    DEFAULT_LASER,
    DEFAULT_SENSORS,
    CmisModel,
    DeviceModel,
    HeaterDriverModel,
    KeysightLaserModel,
    MainframeMeterModel,
    MeshControllerModel,
    QontrolModel,
    SfpModel,
)
from lumion_hw.bench.model import BenchModel, MeshSection
from lumion_hw.clock import Clock
from lumion_hw.emulator.assembly import EmulatedBench
from lumion_hw.emulator.emulation_spec import DeviceSpec, EmulationSpec
from lumion_hw.emulator.optics.truth import PhysicsParameters


def emulated_bench(
    model: BenchModel, clock: Clock, seed: int, *, warm: bool = True, aged_s: float = 0.0
) -> EmulatedBench:
    """Return the emulated bench of a bench file.

    Args:
        model: The checked bench file.
        clock: Clock of all devices.
        seed: Seed of everything random.
        warm: Modules have been powered for long.
        aged_s: Time that has passed since the chip was as the seed draws it.
    """
    # Instruments on a bench without a mesh stand in the dark, beside the smallest mesh that nothing is wired to.
    section = model.mesh or MeshSection.model_validate({"controller": "none", "columns": (2,)})
    controller = model.devices.get(section.controller)
    modules = [device for device in model.devices.values() if isinstance(device, SfpModel)]
    heater_channels = tuple(channel for pair in section.heater_table() for channel in pair)
    spec = EmulationSpec(
        mesh=section.laid_out(),
        wiring=model.to_wiring(),
        devices=tuple(
            _device_spec(name, device, max(heater_channels) + 1, model) for name, device in model.devices.items()
        ),
        controller=section.controller,
        heater_channels=heater_channels,
        monitor_ports=model.monitors(),
        responsivity_a_per_w=(
            controller.monitor_responsivity_a_per_w if isinstance(controller, MeshControllerModel) else 1.0
        ),
        nominal_nm=modules[0].wavelength_nm if modules else 1550.0,
        physics=_physics(model, section, controller),
    )
    return EmulatedBench(spec, clock, seed, warm=warm, aged_s=aged_s)


def _device_spec(name: str, device: DeviceModel, n_channels: int, bench: BenchModel) -> DeviceSpec:
    """Return what to emulate for one device: it answers with the identity the file expects.

    A chain whose modules the file leaves open gets as many as ``n_channels`` need.
    """
    kind: str = getattr(device, "kind")  # noqa: B009 - every member of the device union has one
    serial = getattr(device, "serial", None) or f"EMU-{name}"[:16]
    if isinstance(device, QontrolModel):
        modules = device.modules or tuple(f"Q8iv-{number:04X}" for number in range(1, -(-n_channels // 8) + 1))
        return DeviceSpec(name, kind, ",".join(modules))
    if isinstance(device, SfpModel):
        profile = {
            "launch_dbm": device.tx_power_dbm,
            "los_assert_dbm": device.los_assert_dbm,
            "los_release_dbm": device.los_release_dbm,
        }
        return DeviceSpec(name, kind, serial, profile=profile)
    if isinstance(device, CmisModel):
        return DeviceSpec(name, kind, serial, device.profile)
    if isinstance(device, MainframeMeterModel | KeysightLaserModel):
        return _keysight_spec(name, device, serial, bench)
    return DeviceSpec(name, kind, serial, getattr(device, "model", None) or "")


def _keysight_spec(
    name: str, device: MainframeMeterModel | KeysightLaserModel, serial: str, bench: BenchModel
) -> DeviceSpec:
    """Return what to emulate for a mainframe, a laser in one, or a laser of its own."""
    modules: dict[int, str] | None = None if device.modules is None else dict(device.modules)
    if isinstance(device, MainframeMeterModel):
        modules = modules or dict(DEFAULT_SENSORS)
        if any(isinstance(it, KeysightLaserModel) and it.mainframe == name for it in bench.devices.values()):
            modules.setdefault(0, DEFAULT_LASER)
        return DeviceSpec(name, device.kind, serial, device.model or "8164B", modules=modules)
    if device.mainframe is not None or (modules is None and device.model not in ("8164A", "8164B")):
        return DeviceSpec(name, device.kind, serial, device.model or "", mainframe=device.mainframe)
    modules = modules or {0: DEFAULT_LASER}
    return DeviceSpec(name, device.kind, serial, device.model or "8164B", modules=modules)


def _physics(model: BenchModel, mesh: MeshSection, controller: DeviceModel | None) -> PhysicsParameters:
    """Return the spreads of the hidden truth: those of the file, the rest by default."""
    section = model.emulation
    return PhysicsParameters(
        puc_loss_db=mesh.typical.puc_loss_db,
        access_loss_db=mesh.typical.access_loss_db,
        heater_ohm=controller.heater_ohm if isinstance(controller, HeaterDriverModel) else 1000.0,
        puc_loss_sigma_db=section.puc_loss_sigma_db,
        access_loss_sigma_db=section.access_loss_sigma_db,
        coupler_common_sigma=section.coupler_common_sigma,
        coupler_difference_rad=section.coupler_difference_rad,
        random_passive_phases=section.passive_phases == "random",
        p_pi_min_mw=section.p_pi_mw.min,
        p_pi_typical_mw=section.p_pi_mw.typical,
        p_pi_max_mw=section.p_pi_mw.max,
        heater_ohm_sigma=section.heater_ohm_sigma,
        thermal_nonlinearity_per_mw=section.thermal_nonlinearity_per_mw,
        thermal_tau_s=section.thermal_tau_s,
        crosstalk=section.crosstalk,
        monitor_noise_relative=section.monitor_noise_relative,
        monitor_noise_floor_dbm=section.monitor_noise_floor_dbm,
        fibre_drift_rad2_per_s=section.fibre_drift_rad2_per_s,
        tm_rejection_db=section.tm_rejection_db,
        temperature_sigma_k=section.temperature_sigma_k,
        resistance_drift_per_root_day=section.resistance_drift_per_root_day,
        phase_drift_rad_per_root_day=section.phase_drift_rad_per_root_day,
    )
