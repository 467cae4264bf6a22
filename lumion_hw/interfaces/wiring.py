"""Fixed optical wiring of a bench: which device is connected to which mesh port."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

BLOCKED_DB = 200.0
"""Loss in dB assumed for a closed shutter, a missing switch connection, or an amplifier that is off."""

Tributary = Literal["x", "y"]
"""Output of a polarization splitter, or input of a combiner."""


@dataclass(frozen=True)
class InlineDevice:
    """An attenuator, switch or amplifier through which light passes.

    Attributes:
        device: Device name.
        channel: Channel of an attenuator, or the switch port at which the light enters.
        exit_port: Switch port at which the light leaves; ``None`` for other devices.
    """

    device: str
    channel: int = 1
    exit_port: int | None = None


@dataclass(frozen=True)
class MeterTap:
    """Branch of a splitter that sends ``fraction`` of the light to a power meter or a spectrum analyser.

    ``meter`` is the device name, and ``channel`` is its channel, from 1.
    """

    meter: str
    channel: int
    fraction: float


@dataclass(frozen=True)
class InputPath:
    """Path from a transponder's transmitter, or from a tunable laser, to a mesh port.

    Attributes:
        transponder: Device name of the module; ``None`` if the source is a laser.
        port: Mesh port.
        polarization: Device name of the polarization controller in this path; ``None`` without one.
        loss_db: Passive loss from the source to the mesh facet, without the facet.
        gain_db: Gain of the booster amplifier in this path; 0 without an amplifier. If ``through`` names an amplifier,
            ``gain_db`` is used for planning only.
        polarimeter: Device name of the polarimeter at a tap just before the facet; ``None`` without one.
        polarimeter_tap: Fraction of the power that goes to the polarimeter; ``loss_db`` includes this loss.
        tributary: Output of the polarization splitter-rotator that feeds this port; ``None`` without a splitter. A
            module has one input path per output that it uses.
        laser: Device name of the tunable laser; ``None`` if the source is a module.
        noise_figure_db: Noise figure of the booster amplifier.
        through: Devices that the light passes, the one next to the source first.
        inline_losses_db: Present loss of each device in ``through``, in dB, as part of ``loss_db``; for an amplifier,
            ``gain_db`` minus its measured gain. Empty until the devices have been read.
        by_hand: Whether an operator moves the laser's fibre by hand between its input paths.
    """

    transponder: str | None
    port: int
    polarization: str | None
    loss_db: float
    gain_db: float
    polarimeter: str | None = None
    polarimeter_tap: float = 0.01
    tributary: Tributary | None = None
    laser: str | None = None
    noise_figure_db: float = 5.0
    through: tuple[InlineDevice, ...] = ()
    inline_losses_db: tuple[float, ...] = ()
    by_hand: bool = False

    @property
    def source(self) -> str:
        """Device name of the module or laser that feeds this path."""
        return self.transponder or self.laser or ""

    @property
    def fibre_loss_db(self) -> float:
        """Loss in dB of the path without the devices in ``through``."""
        return self.loss_db - sum(self.inline_losses_db)


@dataclass(frozen=True)
class OutputPath:
    """Path from a mesh port to a transponder's receiver, or directly to a power meter.

    Attributes:
        port: Mesh port.
        transponder: Device name of the module; ``None`` if all the light goes to meters.
        loss_db: Passive loss from the facet to the splitter.
        meter: Device name of the power meter at the tap; ``None`` without one.
        meter_channel: Channel of the power meter, from 1.
        tap_fraction: Fraction of the power that goes to the meter; the rest goes to the receiver.
        tributary: Input of the polarization combiner that this port feeds; ``None`` without a combiner.
        through: Devices that the light passes before the splitter, the one next to the mesh first.
        inline_losses_db: Loss of each device in ``through``, as in :class:`InputPath`.
        taps: Further branches of the splitter, besides that of ``meter``.
        by_hand: Whether an operator moves the meter's fibre by hand between its output paths.
    """

    port: int
    transponder: str | None
    loss_db: float
    meter: str | None
    meter_channel: int | None
    tap_fraction: float
    tributary: Tributary | None = None
    through: tuple[InlineDevice, ...] = ()
    taps: tuple[MeterTap, ...] = ()
    inline_losses_db: tuple[float, ...] = ()
    by_hand: bool = False

    @property
    def receiver_fraction(self) -> float:
        """Fraction of the power that reaches the receiver."""
        return 1.0 - self.tap_fraction - sum(tap.fraction for tap in self.taps)

    @property
    def all_taps(self) -> tuple[MeterTap, ...]:
        """All branches of the splitter that lead to meters and analysers."""
        first = self.meter is not None and self.meter_channel is not None
        own = (MeterTap(self.meter or "", self.meter_channel or 0, self.tap_fraction),) if first else ()
        return (*own, *self.taps)


@dataclass(frozen=True)
class FibrePath:
    """A fibre from a module or laser to a receiver or to meters, without passing the mesh.

    Attributes:
        source: Device name of the module or laser that sends.
        transponder: Device name of the module that receives; ``None`` if all the light goes to meters.
        loss_db: Passive loss before the splitter.
        through: Devices that the light passes before the splitter, the one next to the source first.
        taps: Branches of the splitter that lead to meters and analysers.
    """

    source: str
    transponder: str | None
    loss_db: float
    through: tuple[InlineDevice, ...] = ()
    taps: tuple[MeterTap, ...] = ()

    @property
    def receiver_fraction(self) -> float:
        """Fraction of the power that reaches the receiver."""
        return 1.0 - sum(tap.fraction for tap in self.taps)


@dataclass(frozen=True)
class LoopPath:
    """A fibre that connects two mesh ports, or reflects light back into a single port.

    Attributes:
        ports: The two ports; equal for a reflector.
        loss_db: Loss from facet to facet; for a reflector, through the fibre and back.
        length_m: Length of the light path in the fibre.
    """

    ports: tuple[int, int]
    loss_db: float
    length_m: float


@dataclass(frozen=True)
class Wiring:
    """All input paths, output paths, bypass fibres and fibre loops of a bench."""

    inputs: tuple[InputPath, ...]
    outputs: tuple[OutputPath, ...]
    fibres: tuple[FibrePath, ...] = ()
    loops: tuple[LoopPath, ...] = ()

    def input_of(self, transponder: str) -> InputPath:
        """Return the first input path fed by a module. Raises ``KeyError`` if there is none."""
        for path in self.inputs:
            if path.transponder == transponder:
                return path
        raise KeyError(transponder)

    def output_of(self, transponder: str) -> OutputPath:
        """Return the first output path that feeds a module's receiver. Raises ``KeyError`` if there is none."""
        for path in self.outputs:
            if path.transponder == transponder:
                return path
        raise KeyError(transponder)

    def has_lanes(self, module: str) -> bool:
        """Return whether the media lanes of a module are wired one by one, with names such as ``dr4-a/2``."""
        names = [path.transponder for path in self.inputs] + [path.transponder for path in self.outputs]
        names += [end for path in self.fibres for end in (path.source, path.transponder)]
        return any(name is not None and name.startswith(f"{module}/") for name in names)

    def inputs_of(self, transponder: str) -> tuple[InputPath, ...]:
        """Return all input paths fed by a module; two behind a polarization splitter."""
        return tuple(path for path in self.inputs if path.transponder == transponder)

    def outputs_of(self, transponder: str) -> tuple[OutputPath, ...]:
        """Return all output paths to a module's receiver; two before a polarization combiner."""
        return tuple(path for path in self.outputs if path.transponder == transponder)


@dataclass(frozen=True)
class FibreEnds:
    """Ports of a mesh whose fibres lead to other meshes, and carry light in one direction.

    Such a port has no module of its own; its name among the modules is ``port`` and its number, such as ``port12``.

    Attributes:
        inputs: Ports at which light of other meshes enters.
        outputs: Ports at which light leaves for other meshes.
    """

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all ports."""
        return tuple(end_name(port) for port in (*self.inputs, *self.outputs))

    def added_to(self, wiring: Wiring) -> Wiring:
        """Return the wiring with a path for each port; all losses of the fibres are counted elsewhere."""
        inputs = tuple(InputPath(end_name(port), port, None, 0.0, 0.0) for port in self.inputs)
        outputs = tuple(OutputPath(port, end_name(port), 0.0, None, None, 0.0) for port in self.outputs)
        return replace(wiring, inputs=(*wiring.inputs, *inputs), outputs=(*wiring.outputs, *outputs))


NO_ENDS = FibreEnds()
"""The ends of a bench that is joined to no other."""


def end_name(port: int) -> str:
    """Return the name of a port with a fibre to another mesh."""
    return f"port{port}"
