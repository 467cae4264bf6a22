"""The bench file as a model: devices, mesh, wiring, servers, fabric, and the physics of its emulation.

Read a file with :func:`lumion_hw.bench.file.loader.load_bench`, which reports every mistake with its line and column. A
model built from Python data gets the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, create_model, model_validator
from pydantic_core import PydanticCustomError, PydanticKnownError

from lumion_hw.bench.file.checks import cross_check, path_text
from lumion_hw.bench.file.devices import DeviceModel, HeaterDriverModel
from lumion_hw.bench.file.emulation import EmulationModel
from lumion_hw.bench.file.fields import Name, Number, StrictModel, Version, Whole
from lumion_hw.bench.file.known_kinds import KindRegistry, UnusableKindError, kind_named, kind_names
from lumion_hw.bench.file.layout import layout_fields, topology_of
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import FibrePath, InlineDevice, InputPath, LoopPath, MeterTap, OutputPath, Wiring

if TYPE_CHECKING:
    from lumion_hw.mesh.layout.topology import MeshTopology


def _of_its_kind(device: object) -> object:
    """Return the model of a device, by its kind; the kind is loaded now."""
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
        listed = ", ".join(f"'{known}'" for known in kind_names())
        told = {"discriminator": "'kind'", "tag": str(name), "expected_tags": listed}
        raise PydanticKnownError("union_tag_invalid", told)
    return kind.model.model_validate(device)


Device = Annotated[SerializeAsAny[DeviceModel], BeforeValidator(_of_its_kind)]
"""Any device, told apart by ``kind``."""


class TypicalMeshModel(StrictModel):
    """What a plan or a calibration assumes before anything is measured (Sánchez-Jácome 2025)."""

    puc_loss_db: Number = Field(0.5, ge=0.0, le=20.0, description="Loss per PUC passed.")
    access_loss_db: Number = Field(6.85, ge=0.0, le=40.0, description="Facet and on-chip routing, per port.")
    p_pi_min_mw: Number = Field(1.2, gt=0.0, le=1000.0, description="Least heater power per half turn of phase.")
    p_pi_max_mw: Number = Field(2.0, gt=0.0, le=1000.0, description="Largest heater power per half turn of phase.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.p_pi_min_mw > self.p_pi_max_mw:
            raise ValueError(f"expected p_pi_min_mw <= p_pi_max_mw, found {self.p_pi_min_mw:g}, {self.p_pi_max_mw:g}")
        return self


if TYPE_CHECKING:

    class MeshLayoutKeys(StrictModel):
        """The keys that say which mesh it is."""

else:
    # They come from the table of topologies, so that a further one brings its own.
    MeshLayoutKeys = create_model("MeshLayoutKeys", __base__=StrictModel, **layout_fields())


class MeshSection(MeshLayoutKeys):
    """The mesh chip and how its controller is wired to it."""

    controller: Name = Field(
        description="Device that drives the heaters and reads the monitors, or sets the states of the PUCs."
    )
    heater_channels: dict[Whole, tuple[Whole, Whole]] = Field(
        default_factory=dict, description="PUC: [upper, lower] drive channel, where it is not [2 PUC, 2 PUC + 1]."
    )
    monitor_ports: tuple[Whole, ...] | None = Field(
        None,
        description="Ports with a photodiode, in the controller's monitor order; all fibre ports if not given, none "
        "where the controller has no photodiodes.",
    )
    settle_s: Number | None = Field(
        None,
        ge=0.0,
        le=60.0,
        description="Wait between a setting of the heaters and the first reading, at least five of their thermal time "
        "constants; without it ten of those that a calibration has measured, and never less than 0.001.",
    )
    temperature: Name | None = Field(
        None, description="Temperature controller that holds the chip; a calibration waits until it is locked."
    )
    temperature_wait_s: Number = Field(
        600.0, gt=0.0, le=7200.0, description="Longest time that a calibration waits for the temperature."
    )
    typical: TypicalMeshModel = Field(default_factory=TypicalMeshModel, description="What is assumed at first.")

    def laid_out(self) -> MeshTopology:
        """Return the mesh. Raises ``ConfigError`` if there is none of this size."""
        return topology_of(self.model_dump(exclude_unset=True))

    def heater_table(self) -> tuple[tuple[int, int], ...]:
        """Return the (upper, lower) drive channel of every PUC, in PUC order."""
        return tuple(self.heater_channels.get(puc, (2 * puc, 2 * puc + 1)) for puc in range(self.laid_out().n_pucs))


class LightPartModel(StrictModel):
    """A device that light passes on its way: an attenuator, a switch or an amplifier."""

    device: Name = Field(description="Attenuator, optical switch or amplifier.")
    channel: Whole | None = Field(None, ge=1, description="Channel of an attenuator, from 1; the first if not given.")
    enters: Whole | None = Field(None, ge=1, description="Port of a switch at which the light enters.")
    leaves: Whole | None = Field(None, ge=1, description="Port of a switch at which it leaves to go on this way.")

    def to_part(self) -> InlineDevice:
        """Return it in the form of the wiring."""
        return InlineDevice(self.device, self.enters or self.channel or 1, self.leaves)


_THROUGH = "Attenuators, switches and amplifiers that the light passes, in its order; their losses are not in loss_db."


class InputModel(StrictModel):
    """From a transponder's transmitter, or from a tunable laser, into a mesh port: exactly one of the two."""

    transponder: Name | None = Field(None, description="Module whose transmitter it is.")
    laser: Name | None = Field(None, description="Tunable laser in place of a module, for calibration.")
    port: Whole = Field(description="Mesh port the light enters at.")
    polarization: Name | None = Field(None, description="Polarization controller on the way; none at a tributary.")
    loss_db: Number = Field(0.0, ge=0.0, le=60.0, description="Fibre, connectors and controller; not the facet.")
    gain_db: Number = Field(
        0.0,
        ge=0.0,
        le=40.0,
        description="Booster amplifier on the way; where through names one, what circuits are planned with.",
    )
    noise_figure_db: Number = Field(5.0, ge=0.0, le=20.0, description="Noise figure of that amplifier.")
    polarimeter: Name | None = Field(None, description="Polarimeter on a tap just before the facet.")
    polarimeter_tap: Number = Field(
        0.01, gt=0.0, lt=1.0, description="Share of the power that goes to it; its loss is part of loss_db."
    )
    tributary: Literal["x", "y"] | None = Field(
        None,
        description="Output of a polarization splitter-rotator: one input for each tributary.",
    )
    through: tuple[LightPartModel, ...] = Field((), description=_THROUGH)


class TapModel(StrictModel):
    """A splitter that gives a share of the light to a power meter."""

    meter: Name = Field(description="Power meter behind the splitter.")
    channel: Whole = Field(ge=1, description="Channel of the meter, from 1.")
    fraction: Number = Field(
        1.0,
        gt=0.0,
        le=1.0,
        description="Share of the power that goes to the meter; below 1 where a transponder gets the rest.",
    )


class FurtherTapModel(StrictModel):
    """One more end of a splitter, with a power meter or a spectrum analyser."""

    meter: Name = Field(description="Power meter or spectrum analyser.")
    channel: Whole = Field(1, ge=1, description="Its channel, from 1.")
    fraction: Number = Field(gt=0.0, le=1.0, description="Share of the light that goes to it.")

    def to_tap(self) -> MeterTap:
        """Return it in the form of the wiring."""
        return MeterTap(self.meter, self.channel, self.fraction)


class OutputModel(StrictModel):
    """From a mesh port into a transponder's receiver, or without one straight into a power meter."""

    port: Whole = Field(description="Mesh port the light leaves at.")
    transponder: Name | None = Field(None, description="Module whose receiver it is; none where a meter takes it all.")
    loss_db: Number = Field(0.0, ge=0.0, le=60.0, description="Fibre and connectors; neither facet nor splitter.")
    tap: TapModel | None = Field(None, description="Power meter that sees a share of this light.")
    tributary: Literal["x", "y"] | None = Field(None, description="Input of a polarization rotator-combiner.")
    through: tuple[LightPartModel, ...] = Field((), description=_THROUGH)
    taps: tuple[FurtherTapModel, ...] = Field(
        (), description="Further ends of the splitter, with meters by which the mesh is not read, or with analysers."
    )


class FibreModel(StrictModel):
    """A fibre beside the mesh: from a module or laser to a module, back to the same one, or to meters."""

    transponder: Name | None = Field(None, description="Module whose transmitter it is.")
    laser: Name | None = Field(None, description="Tunable laser in place of a module.")
    receiver: Name | None = Field(None, description="Module whose receiver it leads to; the sender itself: loop-back.")
    loss_db: Number = Field(0.0, ge=0.0, le=80.0, description="Fibre and connectors.")
    through: tuple[LightPartModel, ...] = Field((), description=_THROUGH)
    taps: tuple[FurtherTapModel, ...] = Field((), description="Meters and analysers at a splitter in the fibre.")


class LoopModel(StrictModel):
    """A fibre from one port of the mesh back into another; it carries light both ways."""

    ports: tuple[Whole, Whole] = Field(description="The two ports that it joins.")
    loss_db: Number = Field(0.0, ge=0.0, le=60.0, description="Fibre and connectors; not the facets.")
    length_m: Number = Field(2.0, gt=0.0, le=1e5, description="Length of the fibre.")


class ReflectorModel(StrictModel):
    """A mirror at the end of a fibre from a port of the mesh."""

    port: Whole = Field(description="Port that the fibre is at.")
    return_loss_db: Number = Field(0.0, ge=0.0, le=80.0, description="From the facet to the mirror and back to it.")
    length_m: Number = Field(1.0, gt=0.0, le=1e5, description="Length of the fibre, one way.")


class WiringModel(StrictModel):
    """All fibres between transponders, lasers and mesh."""

    inputs: tuple[InputModel, ...] = Field((), description="Ways of light into the mesh.")
    outputs: tuple[OutputModel, ...] = Field((), description="Ways of light out of the mesh.")
    fibres: tuple[FibreModel, ...] = Field((), description="Fibres beside the mesh.")
    loops: tuple[LoopModel, ...] = Field((), description="Fibres from one port of the mesh back into another.")
    reflectors: tuple[ReflectorModel, ...] = Field((), description="Mirrors at ports of the mesh.")


class AcceleratorModel(StrictModel):
    """An accelerator of a server that has network ports of its own, so that it can be replaced alone."""

    name: Name = Field(description="Name of the accelerator.")
    nics: tuple[Name, ...] = Field(min_length=1, description="Those of the server's modules that are its own.")


class ServerModel(StrictModel):
    """A server and the modules of its network ports, in NIC order."""

    name: Name = Field(description="Name of the server.")
    nics: tuple[Name, ...] = Field(min_length=1, description="SFP+ devices; NIC 0 first.")
    interfaces: tuple[str, ...] = Field((), description="Network interfaces of the ports, in the order of nics.")
    accelerators: tuple[AcceleratorModel, ...] = Field((), description="Accelerators that can be replaced alone.")
    risk_group: str | None = Field(None, description="Servers that can fail together share one.")
    risk_groups: tuple[str, ...] = Field((), description="Further ones: power feed, switch, chassis, rack.")

    @property
    def risks(self) -> frozenset[str]:
        """All risk groups it belongs to."""
        return frozenset(self.risk_groups) | ({self.risk_group} if self.risk_group is not None else frozenset())


class JobModel(StrictModel):
    """A job that runs on servers or accelerators, and how its members are to be joined."""

    name: Name = Field(description="Name of the job.")
    members: tuple[Name, ...] = Field(min_length=2, description="Servers or accelerators, in rank order.")
    topology: Literal["pair", "ring", "links"] = Field(
        "pair", description="pair: two members, NIC by NIC; ring: each with the next; links: as listed."
    )
    links: tuple[tuple[Name, Name], ...] = Field((), description="With links: members to be joined, a NIC of each.")


class DetectorModel(BaseModel):
    """One detector of failures; what else it takes, it says itself."""

    model_config = ConfigDict(extra="allow", frozen=True)

    detector: str = Field(description="Its name, as registered under lumion_hw.detectors.")


class FabricModel(StrictModel):
    """Which servers are joined, which stand by, and how a circuit is judged."""

    pairs: tuple[tuple[Name, Name], ...] = Field(
        (), description="Servers joined NIC by NIC, in both directions: each pair is a job of its own."
    )
    jobs: tuple[JobModel, ...] = Field((), description="Jobs and how their members are joined.")
    spares: tuple[Name, ...] = Field((), description="Servers or accelerators that may replace a failed one.")
    loss_tolerance_db: Number | None = Field(
        None,
        gt=0.0,
        le=20.0,
        description="Most that measured and predicted loss of a proof may differ by; by the record's uncertainty alone "
        "if not given.",
    )
    detect_poll_s: Number = Field(0.1, ge=1e-3, le=60.0, description="Period at which receivers are asked for LOS.")
    fade_s: Number = Field(
        0.15, ge=1e-3, le=60.0, description="Light of one fibre alone that is gone for less has only faded."
    )
    detectors: tuple[DetectorModel, ...] = Field(
        (DetectorModel(detector="photodiodes"), DetectorModel(detector="modules")),
        description="What failures are noticed by.",
    )

    @property
    def all_jobs(self) -> tuple[JobModel, ...]:
        """The jobs, those that are given as pairs first."""
        return (*(JobModel(name="-".join(pair), members=pair) for pair in self.pairs), *self.jobs)


class BenchModel(StrictModel):
    """One bench file."""

    version: Version = Field(description="Version of this file format.")
    name: Name = Field(description="Name of the bench.")
    description: str = Field("", description="What it is, in words.")
    devices: dict[Name, Device] = Field(min_length=1, description="Devices by name.")
    mesh: MeshSection | None = Field(
        None, description="The chip and its controller; a bench of instruments alone has none."
    )
    wiring: WiringModel = Field(default_factory=WiringModel, description="Fibres between modules, lasers and mesh.")
    servers: tuple[ServerModel, ...] = Field((), description="Servers and the modules of their network ports.")
    fabric: FabricModel = Field(default_factory=FabricModel, description="Which servers are joined, which stand by.")
    emulation: EmulationModel = Field(default_factory=EmulationModel, description="Physics of the emulated chip.")

    def __repr__(self) -> str:
        """Return one line; the sections are attributes."""
        mesh = "without a mesh" if self.mesh is None else f"on a mesh '{self.topology().label}'"
        return f"<BenchModel {self.name}: {len(self.devices)} devices {mesh}>"

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        problems = cross_check(self.model_dump(exclude_unset=True), KindRegistry())
        if problems:
            raise ValueError("; ".join(f"{path_text(problem.path)}: {problem.message}" for problem in problems))
        return self

    @property
    def mesh_section(self) -> MeshSection:
        """The mesh and how it is wired. Raises ``ConfigError`` where the bench has none."""
        if self.mesh is None:
            raise ConfigError(f"bench {self.name} has no mesh", hint="Give the bench file a section 'mesh'.")
        return self.mesh

    def topology(self) -> MeshTopology:
        """Return the mesh of this bench. Raises ``ConfigError`` if it has none."""
        return self.mesh_section.laid_out()

    def monitors(self) -> tuple[int, ...]:
        """Return the port of each monitor channel of the controller, in channel order; empty if it has none."""
        if self.mesh is None:
            return ()
        controller = self.devices[self.mesh.controller]
        if not isinstance(controller, HeaterDriverModel) or controller.photodiodes_a_per_w is None:
            return ()
        return self.topology().fibre_ports if self.mesh.monitor_ports is None else self.mesh.monitor_ports

    def to_wiring(self) -> Wiring:
        """Return the optical wiring in the form that path set-up, budgets and the emulator use."""
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
