"""The model of a bench file: devices, mesh, wiring, servers, fabric and emulation.

Use :func:`lumion_hw.bench.file.loader.load_bench` to read a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, create_model, model_validator
from pydantic_core import PydanticCustomError, PydanticKnownError

from lumion_hw.bench.file.checks import cross_check, path_text
from lumion_hw.bench.file.devices import DeviceModel, HeaterDriverModel
from lumion_hw.bench.file.emulation import EmulationModel
from lumion_hw.bench.file.fields import (
    ControllerName,
    DeviceName,
    Flag,
    ModuleName,
    Name,
    Number,
    StrictModel,
    Version,
    WholeNumber,
    describe,
)
from lumion_hw.bench.file.known_kinds import KindRegistry, UnusableKindError, kind_named, kind_names
from lumion_hw.bench.file.layout import default_heater_channels, layout_fields, topology_of
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import FibrePath, InlineDevice, InputPath, LoopPath, MeterTap, OutputPath, Wiring
from lumion_hw.mesh.layout.cells import NO_CHANNEL

if TYPE_CHECKING:
    from lumion_hw.mesh.layout.topology import MeshTopology


def _validate_device(device: object) -> object:
    if not isinstance(device, Mapping):
        if isinstance(device, DeviceModel):
            return device
        raise PydanticKnownError("model_attributes_type")
    if "kind" not in device:
        raise PydanticKnownError("union_tag_not_found", {"discriminator": "'kind'"})
    name = device["kind"]
    try:
        kind = kind_named(name) if isinstance(name, str) else None
    except UnusableKindError as error:
        raise PydanticCustomError("unusable_kind", "{error}", {"error": f"{error.message}. {error.hint}"}) from error
    if kind is None:
        listed = ", ".join(f"'{valid}'" for valid in kind_names())
        context = {"discriminator": "'kind'", "tag": str(name), "expected_tags": listed}
        raise PydanticKnownError("union_tag_invalid", context)
    return kind.model.model_validate(device)


Device = Annotated[SerializeAsAny[DeviceModel], BeforeValidator(_validate_device)]
"""A device of any kind; the key ``kind`` selects its model."""


def _validate_channel_pair(pair: object) -> object:
    if isinstance(pair, list | tuple) and len(pair) == 2:
        return pair
    raise ValueError(
        "expected two entries for each PUC, [upper, lower]: the drive channel of each heater, such as [26, 27], or "
        f"null for an arm without a heater, such as [null, 27]; found {describe(pair)}"
    )


ChannelPair = Annotated[tuple[WholeNumber | None, WholeNumber | None], BeforeValidator(_validate_channel_pair)]
"""Drive channels of the heaters of a PUC, upper arm first; ``None`` for an arm without a heater."""


_OF_EACH = {"address", "emulated_port", "emulated_hislip_port", "serial", "modules"}
"""Keys that every one of several controllers has for itself."""


class TypicalMeshModel(StrictModel):
    """Typical values of a mesh, used before a measurement (Sánchez-Jácome 2025)."""

    puc_loss_db: Number = Field(0.5, ge=0.0, le=20.0, description="Loss per PUC.")
    access_loss_db: Number = Field(6.85, ge=0.0, le=40.0, description="Loss of facet and on-chip routing, per port.")
    p_pi_min_mw: Number = Field(1.2, gt=0.0, le=1000.0, description="Smallest heater power for a phase of π.")
    p_pi_max_mw: Number = Field(2.0, gt=0.0, le=1000.0, description="Largest heater power for a phase of π.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.p_pi_min_mw > self.p_pi_max_mw:
            raise ValueError(f"expected p_pi_min_mw <= p_pi_max_mw, found {self.p_pi_min_mw:g}, {self.p_pi_max_mw:g}")
        return self


if TYPE_CHECKING:

    class MeshLayoutKeys(StrictModel):
        """The bench-file keys that select the mesh."""

else:
    # Generated from the table of topologies, so that a new topology adds its own keys.
    MeshLayoutKeys = create_model("MeshLayoutKeys", __base__=StrictModel, **layout_fields())


class MeshSection(MeshLayoutKeys):
    """The mesh and the channels of its controller."""

    controller: ControllerName = Field(
        "", description="Device that drives the heaters and reads the monitors, or sets the states of the PUCs."
    )
    controllers: tuple[Name, ...] | None = Field(
        None,
        min_length=2,
        max_length=16,
        description="Instead of controller, several devices that drive one mesh together: the first channels and "
        "monitors are those of the first, the next those of the second, and so on.",
    )
    heater_channels: dict[WholeNumber, ChannelPair] = Field(
        default_factory=dict,
        description="Drive channels by PUC: [upper, lower]; null for an arm without a heater. Default: all heaters in "
        "order from channel 0.",
    )
    monitor_ports: tuple[WholeNumber, ...] | None = Field(
        None,
        description="Ports with a photodiode, in the monitor order of the controller. Default: all fibre ports, or "
        "none if the controller has no photodiodes.",
    )
    settle_s: Number | None = Field(
        None,
        ge=0.0,
        le=60.0,
        description="Wait between a heater setting and the first reading; at least five thermal time constants. "
        "Default: ten time constants as measured by a calibration, but not less than 0.001.",
    )
    temperature: Name | None = Field(
        None, description="Temperature controller of the chip; a calibration waits until it is locked."
    )
    temperature_wait_s: Number = Field(
        600.0, gt=0.0, le=7200.0, description="Longest time that a calibration waits for the temperature."
    )
    typical: TypicalMeshModel = Field(
        default_factory=TypicalMeshModel, description="Values assumed before measurements."
    )

    @model_validator(mode="before")
    @classmethod
    def _name_several(cls, section: Any) -> Any:
        """Name several controllers together, such as ``mesh0+mesh1``."""
        names = section.get("controllers") if isinstance(section, Mapping) else None
        if not isinstance(names, list | tuple) or "controller" in section:
            return section
        return {**section, "controller": "+".join(names)} if all(isinstance(name, str) for name in names) else section

    @property
    def drivers(self) -> tuple[str, ...]:
        """Names of the devices that drive this mesh."""
        return (self.controller,) if self.controllers is None else self.controllers

    def is_driven_by(self, device: str | None) -> bool:
        """Return whether a device drives this mesh, alone or with others."""
        return device == self.controller or device in self.drivers

    def laid_out(self) -> MeshTopology:
        """Return the topology of the mesh. Raises ``ConfigError`` if its size is invalid."""
        return topology_of(self.model_dump(exclude_unset=True))

    def channels(self) -> tuple[int, ...]:
        """Return the drive channel of every heater, by 2·PUC + arm (upper arm first); ``NO_CHANNEL`` without heater."""
        mesh = self.laid_out()
        pairs = (self.heater_channels.get(puc, default) for puc, default in enumerate(default_heater_channels(mesh)))
        return tuple(NO_CHANNEL if channel is None else channel for pair in pairs for channel in pair)


class LightPartModel(StrictModel):
    """A device in the light path: an attenuator, a switch or an amplifier."""

    device: Name = Field(description="Attenuator, optical switch or amplifier.")
    channel: WholeNumber | None = Field(
        None, ge=1, description="Channel of an attenuator, from 1; the first if not given."
    )
    enters: WholeNumber | None = Field(
        None, ge=1, description="Switch port at which the light enters; inputs count from 1."
    )
    leaves: WholeNumber | None = Field(
        None, ge=1, description="Switch port at which the light leaves; outputs count on after the inputs."
    )

    def to_part(self) -> InlineDevice:
        """Convert the entry to an inline device of the wiring."""
        return InlineDevice(self.device, self.enters or self.channel or 1, self.leaves)


_THROUGH = "Attenuators, switches and amplifiers in the path, in the order of the light; not included in loss_db."


class InputModel(StrictModel):
    """The fibre from a module or a tunable laser to a mesh port."""

    transponder: ModuleName | None = Field(None, description="Module whose transmitter is the source.")
    laser: Name | None = Field(None, description="Tunable laser as the source, instead of a module.")
    port: WholeNumber = Field(description="Mesh port at which the light enters.")
    polarization: Name | None = Field(None, description="Polarization controller in the path; not for a tributary.")
    loss_db: Number = Field(
        0.0, ge=0.0, le=60.0, description="Loss of fibre, connectors and polarization controller, without the facet."
    )
    gain_db: Number = Field(
        0.0,
        ge=0.0,
        le=40.0,
        description="Gain of a booster amplifier in the path; if `through` names it, the gain assumed in planning.",
    )
    noise_figure_db: Number = Field(5.0, ge=0.0, le=20.0, description="Noise figure of this amplifier.")
    polarimeter: Name | None = Field(None, description="Polarimeter on a tap just before the facet.")
    polarimeter_tap: Number = Field(
        0.01, gt=0.0, lt=1.0, description="Fraction of the power for the polarimeter; its loss is part of loss_db."
    )
    tributary: Literal["x", "y"] | None = Field(
        None,
        description="Output of a polarization splitter-rotator; give one input for each tributary.",
    )
    through: tuple[LightPartModel, ...] = Field((), description=_THROUGH)
    by_hand: Flag = Field(False, description="Whether the laser's fibre is moved by hand between its inputs.")


class TapModel(StrictModel):
    """A splitter that sends a fraction of the light to a power meter."""

    meter: Name = Field(description="Power meter at the splitter.")
    channel: WholeNumber = Field(ge=1, description="Channel of the meter, from 1.")
    fraction: Number = Field(
        1.0,
        gt=0.0,
        le=1.0,
        description="Fraction of the power for the meter; below 1 if a module gets the rest.",
    )
    by_hand: Flag = Field(False, description="Whether the meter's fibre is moved by hand between the outputs.")


class FurtherTapModel(StrictModel):
    """A further output of a splitter, with a power meter or a spectrum analyser."""

    meter: Name = Field(description="Power meter or spectrum analyser.")
    channel: WholeNumber = Field(1, ge=1, description="Channel of the instrument, from 1.")
    fraction: Number = Field(gt=0.0, le=1.0, description="Fraction of the power for this instrument.")

    def to_tap(self) -> MeterTap:
        """Convert the entry to a tap of the wiring."""
        return MeterTap(self.meter, self.channel, self.fraction)


class OutputModel(StrictModel):
    """The fibre from a mesh port to the receiver of a module or to a power meter."""

    port: WholeNumber = Field(description="Mesh port at which the light leaves.")
    transponder: ModuleName | None = Field(
        None, description="Module whose receiver gets the light; none if a meter gets all of it."
    )
    loss_db: Number = Field(
        0.0, ge=0.0, le=60.0, description="Loss of fibre and connectors, without facet and splitter."
    )
    tap: TapModel | None = Field(None, description="Power meter that gets a fraction of this light.")
    tributary: Literal["x", "y"] | None = Field(None, description="Input of a polarization rotator-combiner.")
    through: tuple[LightPartModel, ...] = Field((), description=_THROUGH)
    taps: tuple[FurtherTapModel, ...] = Field(
        (), description="Further outputs of the splitter, with analysers or with meters that are not mesh monitors."
    )


class FibreModel(StrictModel):
    """A fibre around the mesh: from a module or laser to a module (possibly the same) or to meters."""

    transponder: ModuleName | None = Field(None, description="Module whose transmitter is the source.")
    laser: Name | None = Field(None, description="Tunable laser as the source, instead of a module.")
    receiver: ModuleName | None = Field(
        None, description="Module whose receiver gets the light; the sender for a loop-back."
    )
    loss_db: Number = Field(0.0, ge=0.0, le=80.0, description="Loss of fibre and connectors.")
    through: tuple[LightPartModel, ...] = Field((), description=_THROUGH)
    taps: tuple[FurtherTapModel, ...] = Field((), description="Meters and analysers at a splitter in the fibre.")


class LoopModel(StrictModel):
    """A fibre that connects two ports of the mesh and carries light in both directions."""

    ports: tuple[WholeNumber, WholeNumber] = Field(description="The two ports.")
    loss_db: Number = Field(0.0, ge=0.0, le=60.0, description="Loss of fibre and connectors, without the facets.")
    length_m: Number = Field(2.0, gt=0.0, le=1e5, description="Length of the fibre.")


class ReflectorModel(StrictModel):
    """A mirror at the end of a fibre at a port of the mesh."""

    port: WholeNumber = Field(description="Port of the fibre.")
    return_loss_db: Number = Field(0.0, ge=0.0, le=80.0, description="Loss from the facet to the mirror and back.")
    length_m: Number = Field(1.0, gt=0.0, le=1e5, description="Length of the fibre, one way.")


class WiringModel(StrictModel):
    """All fibres between modules, lasers and mesh."""

    inputs: tuple[InputModel, ...] = Field((), description="Paths into the mesh.")
    outputs: tuple[OutputModel, ...] = Field((), description="Paths out of the mesh.")
    fibres: tuple[FibreModel, ...] = Field((), description="Fibres that bypass the mesh.")
    loops: tuple[LoopModel, ...] = Field((), description="Fibres between two ports of the mesh.")
    reflectors: tuple[ReflectorModel, ...] = Field((), description="Mirrors at ports of the mesh.")


class AcceleratorModel(StrictModel):
    """An accelerator with its own network ports."""

    name: Name = Field(description="Name of the accelerator.")
    nics: tuple[ModuleName, ...] = Field(
        min_length=1, description="The modules of the server that belong to this accelerator."
    )


class ServerModel(StrictModel):
    """A server and the modules in its network ports."""

    name: Name = Field(description="Name of the server.")
    nics: tuple[ModuleName, ...] = Field(min_length=1, description="Modules of the network ports; NIC 0 first.")
    interfaces: tuple[str, ...] = Field((), description="Network interfaces of the ports, in the order of nics.")
    accelerators: tuple[AcceleratorModel, ...] = Field((), description="Accelerators that can be replaced separately.")
    risk_group: str | None = Field(None, description="Name shared by all servers that can fail together.")
    risk_groups: tuple[str, ...] = Field((), description="Further risk groups: power feed, switch, chassis, rack.")

    @property
    def risks(self) -> frozenset[str]:
        """Names of the risk groups of the server; servers in one group can fail together."""
        return frozenset(self.risk_groups) | ({self.risk_group} if self.risk_group is not None else frozenset())


class JobModel(StrictModel):
    """A job on servers or accelerators, and the topology of its links."""

    name: Name = Field(description="Name of the job.")
    members: tuple[Name, ...] = Field(min_length=2, description="Servers or accelerators, in rank order.")
    topology: Literal["pair", "ring", "links"] = Field(
        "pair", description="pair: two members, NIC by NIC; ring: each member to the next; links: as in key links."
    )
    links: tuple[tuple[Name, Name], ...] = Field(
        (), description="Pairs of members; each pair uses one NIC of each member. Only with topology links."
    )


class DetectorModel(BaseModel):
    """A detector of failures; its other keys depend on the kind of detector."""

    model_config = ConfigDict(extra="allow", frozen=True)

    detector: str = Field(description="Name of the detector, as registered under lumion_hw.detectors.")


class FabricModel(StrictModel):
    """The jobs, their spares, and the detection of failures."""

    pairs: tuple[tuple[Name, Name], ...] = Field(
        (), description="Pairs of servers to connect NIC by NIC, in both directions; each pair is a job."
    )
    jobs: tuple[JobModel, ...] = Field((), description="Jobs and the topology of their members.")
    spares: tuple[Name, ...] = Field((), description="Servers or accelerators that can replace a failed one.")
    loss_tolerance_db: Number | None = Field(
        None,
        gt=0.0,
        le=20.0,
        description="Largest accepted difference between measured and predicted loss of a circuit. Default: derived "
        "from the uncertainty of the calibration record.",
    )
    detect_poll_s: Number = Field(0.1, ge=1e-3, le=60.0, description="Time between two readings of the receivers' LOS.")
    fade_s: Number = Field(
        0.15,
        ge=1e-3,
        le=60.0,
        description="Loss of light in a single fibre for less than this time counts as fading, not as failure.",
    )
    hook_timeout_s: Number = Field(
        600.0, ge=0.1, le=86400.0, description="Time limit of each call of the jobs' hook program."
    )
    detectors: tuple[DetectorModel, ...] = Field(
        (DetectorModel(detector="photodiodes"), DetectorModel(detector="modules")),
        description="Detectors of failures.",
    )

    @property
    def all_jobs(self) -> tuple[JobModel, ...]:
        """All jobs of the fabric, first the jobs given as pairs."""
        return (*(JobModel(name="-".join(pair), members=pair) for pair in self.pairs), *self.jobs)


class BenchModel(StrictModel):
    """The model of a bench file."""

    version: Version = Field(description="Version of this file format.")
    name: Name = Field(description="Name of the bench.")
    description: str = Field("", description="Description of the bench.")
    devices: dict[DeviceName, Device] = Field(min_length=1, description="Devices by name.")
    mesh: MeshSection | None = Field(
        None, description="The mesh chip and its controller; omit it for a bench without a mesh."
    )
    wiring: WiringModel = Field(default_factory=WiringModel, description="Fibres between modules, lasers and mesh.")
    servers: tuple[ServerModel, ...] = Field((), description="Servers and the modules of their network ports.")
    fabric: FabricModel = Field(default_factory=FabricModel, description="Jobs, spares and failure detection.")
    emulation: EmulationModel = Field(default_factory=EmulationModel, description="Physics of the emulated chip.")

    def __repr__(self) -> str:
        mesh = "without a mesh" if self.mesh is None else f"on a mesh '{self.topology().label}'"
        return f"<BenchModel {self.name}: {len(self.devices)} devices {mesh}>"

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        problems = cross_check(self.model_dump(exclude_unset=True), KindRegistry())
        if problems:
            raise ValueError("; ".join(f"{path_text(problem.path)}: {problem.message}" for problem in problems))
        return self

    @model_validator(mode="after")
    def _lanes_are_devices(self) -> Self:
        """Add an entry for each media lane of a module that a fibre names, such as ``dr4-a/2``."""
        wiring = self.wiring
        named = [path.transponder for path in wiring.inputs] + [path.transponder for path in wiring.outputs]
        named += [end for path in wiring.fibres for end in (path.transponder, path.receiver)]
        for name in dict.fromkeys(named):
            module, _, lane = (name or "").partition("/")
            if name and lane and name not in self.devices:
                device = self.devices[module]
                own = {
                    "lane_of": module,
                    "media_lane": int(lane),
                    "address": None,
                    "serial": None,
                    "emulated_port": None,
                }
                self.devices[name] = device.model_copy(update=own)
        return self

    @model_validator(mode="after")
    def _controllers_are_a_device(self) -> Self:
        """Add an entry for several controllers together, such as ``mesh0+mesh1``, with limits that hold for all."""
        section = self.mesh
        if section is None or section.controllers is None or section.controller in self.devices:
            return self
        parts = [part for name in section.drivers if isinstance(part := self.devices[name], HeaterDriverModel)]
        if len(parts) < len(section.drivers):
            raise ValueError("mesh.controllers: expected devices that drive heater currents")
        own: dict[str, Any] = {
            "parts": section.drivers,
            "heater_max_ma": min(part.heater_max_ma for part in parts),
            "total_power_mw": sum(part.total_power_mw for part in parts),
        }
        own |= dict.fromkeys(_OF_EACH & set(type(parts[0]).model_fields), None)
        self.devices[section.controller] = parts[0].model_copy(update=own)
        return self

    def controller_names(self, of_each: Mapping[str, str]) -> str:
        """Return a name for the controllers of the mesh that is the same whenever they are the same devices.

        Args:
            of_each: Names by device that replace serial number and address.
        """
        names = []
        for name in self.mesh_section.drivers:
            device = self.devices[name]
            names.append(of_each.get(name) or getattr(device, "serial", None) or device.address or name)
        return "+".join(names)

    @property
    def controller_serial(self) -> str | None:
        """Expected serial number of the mesh controller, or of several; ``None`` if the file does not give all."""
        serials = [getattr(self.devices[name], "serial", None) for name in self.mesh_section.drivers]
        return None if None in serials else "+".join(map(str, serials))

    @property
    def mesh_section(self) -> MeshSection:
        """Section ``mesh`` of the bench file. Raises ``ConfigError`` if the bench has no mesh."""
        if self.mesh is None:
            raise ConfigError(f"bench {self.name} has no mesh", hint="Add a section 'mesh' to the bench file.")
        return self.mesh

    def topology(self) -> MeshTopology:
        """Return the mesh of this bench. Raises ``ConfigError`` if the bench has no mesh."""
        return self.mesh_section.laid_out()

    def monitors(self) -> tuple[int, ...]:
        """Return the port of each monitor channel of the controller, in channel order; empty without photodiodes."""
        if self.mesh is None:
            return ()
        controller = self.devices[self.mesh.controller]
        if not isinstance(controller, HeaterDriverModel) or controller.photodiodes_a_per_w is None:
            return ()
        return self.topology().fibre_ports if self.mesh.monitor_ports is None else self.mesh.monitor_ports

    def to_wiring(self) -> Wiring:
        """Convert section ``wiring`` to the form that circuits, link budgets and the emulator use."""
        return Wiring(
            inputs=tuple(
                InputPath(
                    transponder=path.transponder,
                    port=path.port,
                    polarization=path.polarization,
                    loss_db=path.loss_db,
                    gain_db=path.gain_db,
                    noise_figure_db=path.noise_figure_db,
                    polarimeter=path.polarimeter,
                    tributary=path.tributary,
                    polarimeter_tap=path.polarimeter_tap,
                    laser=path.laser,
                    through=tuple(part.to_part() for part in path.through),
                    by_hand=path.by_hand,
                )
                for path in self.wiring.inputs
            ),
            outputs=tuple(
                OutputPath(
                    port=path.port,
                    transponder=path.transponder,
                    loss_db=path.loss_db,
                    meter=path.tap.meter if path.tap else None,
                    meter_channel=path.tap.channel if path.tap else None,
                    tap_fraction=path.tap.fraction if path.tap else 0.0,
                    tributary=path.tributary,
                    through=tuple(part.to_part() for part in path.through),
                    taps=tuple(tap.to_tap() for tap in path.taps),
                    by_hand=path.tap is not None and path.tap.by_hand,
                )
                for path in self.wiring.outputs
            ),
            fibres=tuple(
                FibrePath(
                    source=path.transponder or path.laser or "",
                    transponder=path.receiver,
                    loss_db=path.loss_db,
                    through=tuple(part.to_part() for part in path.through),
                    taps=tuple(tap.to_tap() for tap in path.taps),
                )
                for path in self.wiring.fibres
            ),
            loops=(
                *(LoopPath(path.ports, path.loss_db, path.length_m) for path in self.wiring.loops),
                *(
                    LoopPath((path.port, path.port), path.return_loss_db, 2.0 * path.length_m)
                    for path in self.wiring.reflectors
                ),
            ),
        )

    def server(self, name: str) -> ServerModel:
        """Return a server by name. Raises ``KeyError`` if there is none."""
        for server in self.servers:
            if server.name == name:
                return server
        raise KeyError(name)
