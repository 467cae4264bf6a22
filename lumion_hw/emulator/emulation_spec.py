"""What to emulate, in the emulator's own words: whoever reads bench files writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lumion_hw.emulator.optics.truth import PhysicsParameters
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.mesh.topology import MeshTopology


@dataclass(frozen=True)
class DeviceSpec:
    """One device to emulate.

    Attributes:
        name: Device name of the bench file.
        kind: Kind as in the bench file.
        serial: Serial number it answers with; of a chain, those of its modules with commas between.
        model: Model it answers with, where the kind has several.
        profile: Figures of a module that differ from the standard ones, by name.
        modules: Slot -> module of a mainframe.
        mainframe: Name of the mainframe that this device is plugged into; it has no body of its own.
    """

    name: str
    kind: str
    serial: str
    model: str = ""
    profile: Mapping[str, float] | None = None
    modules: Mapping[int, str] | None = None
    mainframe: str | None = None


@dataclass(frozen=True)
class EmulationSpec:
    """A bench to emulate.

    Attributes:
        mesh: The mesh.
        wiring: Which module's light goes where.
        devices: Every device.
        controller: Name of the device that drives the heaters of the mesh; others of its kind drive nothing.
        heater_channels: Drive channel of every heater, by 2·PUC + arm.
        monitor_ports: Port of every monitor channel.
        responsivity_a_per_w: Nominal responsivity of the monitors.
        nominal_nm: Nominal wavelength of the modules.
        physics: Spreads from which the hidden truth is drawn.
    """

    mesh: MeshTopology
    wiring: Wiring
    devices: tuple[DeviceSpec, ...]
    controller: str
    heater_channels: tuple[int, ...]
    monitor_ports: tuple[int, ...]
    responsivity_a_per_w: float
    nominal_nm: float
    physics: PhysicsParameters
