"""Whose light enters and leaves the mesh where: the fixed optical wiring of a bench.

Written in the bench file, used by path set-up (budgets), by drivers' callers (which meter sees which circuit) and by
the emulator (the light itself).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BLOCKED_DB = 200.0
"""Loss of what lets no light pass: a closed shutter, a connection that is not made, an amplifier that is off."""

Tributary = Literal["x", "y"]
"""Which output of a polarization splitter, or input of a combiner."""


@dataclass(frozen=True)
class InlineDevice:
    """A device that light passes on its way: an attenuator, a switch or an amplifier.

    What it does depends on its settings, so it is no part of any ``loss_db`` or ``gain_db``.

    Attributes:
        device: Device name.
        channel: Channel of an attenuator, or port of a switch at which the light enters.
        leaves: Port of a switch at which the light has to leave to go on this way; ``None`` for other parts.
    """

    device: str
    channel: int = 1
    exit_port: int | None = None


@dataclass(frozen=True)
class MeterTap:
    """An end of a splitter at which a power meter or a spectrum analyser is.

    Attributes:
        meter: Device name.
        channel: Its channel, from 1.
        fraction: Share of the light that goes to it.
    """

    meter: str
    channel: int
    fraction: float


@dataclass(frozen=True)
class InputPath:
    """From a transponder's transmitter, or from a tunable laser, to a mesh port. Circuits begin at modules only.

    Attributes:
        transponder: Device name of the module; ``None`` where a laser is the source.
        port: Mesh port.
        polarization: Device name of the polarization controller on the way, if there is one.
        loss_db: Passive loss from the module to the mesh facet, controller included, facet excluded.
        gain_db: Gain of the booster amplifier on the way; 0 without one. Where ``through`` names an amplifier, the
            light has the gain that this one gives, and ``gain_db`` is what circuits are planned with.
        polarimeter: Device name of the polarimeter on a tap just before the facet, if there is one.
        polarimeter_tap: Share of the power that goes to it; what the chip loses by it is part of ``loss_db``.
        tributary: Which output of a polarization splitter-rotator this is, turned to TE. A module of two tributaries
            has one input for each, and one of a single polarization may have both (diversity); without a splitter
            (``None``) the chip takes the share that is TE.
        laser: Device name of the tunable laser; ``None`` where a module is the source.
        noise_figure_db: Noise figure of the booster amplifier.
        through: Devices that the light passes, the first one next to the source.
        inline_losses_db: Loss of each device in ``through`` at its present setting, in dB; for an amplifier, the loss
            beyond ``gain_db``. Part of ``loss_db``. Empty until the devices have been read: see
            :func:`lumion_hw.bench.fibre_devices.wiring_with_device_losses`.
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

    @property
    def source(self) -> str:
        """Device name of the module or laser whose light it is."""
        return self.transponder or self.laser or ""

    @property
    def fibre_loss_db(self) -> float:
        """Loss without that of the devices that are set."""
        return self.loss_db - sum(self.inline_losses_db)


@dataclass(frozen=True)
class OutputPath:
    """From a mesh port to a transponder's receiver, or straight to a power meter. Circuits end at modules only.

    Attributes:
        port: Mesh port.
        transponder: Device name of the module; ``None`` where a meter takes all the light.
        loss_db: Passive loss from the facet to the splitter.
        meter: Device name of the power meter on the tap, if there is one.
        meter_channel: Channel of that meter, from 1.
        tap_fraction: Share of the power that goes to the meter; the rest goes to the receiver.
        tributary: Which input of a polarization combiner this is; ``None`` without one.
        through: Devices that the light passes before the splitter, the first one next to the mesh.
        inline_losses_db: What each of them takes as it is set, as of an input.
        taps: Further ends of the splitter, besides that of ``meter``.
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

    @property
    def receiver_fraction(self) -> float:
        """Share of the power that the splitter leaves to the receiver."""
        return 1.0 - self.tap_fraction - sum(tap.fraction for tap in self.taps)

    @property
    def all_taps(self) -> tuple[MeterTap, ...]:
        """All meters and analysers at the splitter."""
        first = self.meter is not None and self.meter_channel is not None
        own = (MeterTap(self.meter or "", self.meter_channel or 0, self.tap_fraction),) if first else ()
        return (*own, *self.taps)


@dataclass(frozen=True)
class FibrePath:
    """A fibre beside the mesh: from a module or laser to a module, to the same one (loop-back), or to meters.

    Attributes:
        source: Device name of the module or laser that sends.
        transponder: Device name of the module that receives; ``None`` where meters take all the light.
        loss_db: Passive loss before the splitter.
        through: Devices that the light passes before the splitter, the first one next to the source.
        taps: Meters and analysers at the splitter.
    """

    source: str
    transponder: str | None
    loss_db: float
    through: tuple[InlineDevice, ...] = ()
    taps: tuple[MeterTap, ...] = ()

    @property
    def receiver_fraction(self) -> float:
        """Share of the power that the splitter leaves to the receiver."""
        return 1.0 - sum(tap.fraction for tap in self.taps)


@dataclass(frozen=True)
class LoopPath:
    """A fibre that leads light from one port of the mesh back into another, both ways; with one port, a reflector.

    Attributes:
        ports: The two ports; one and the same for a reflector.
        loss_db: Passive loss from facet to facet, once through the fibre and back for a reflector.
        length_m: Length of fibre that the light passes.
    """

    ports: tuple[int, int]
    loss_db: float
    length_m: float


@dataclass(frozen=True)
class Wiring:
    """All inputs and outputs of a bench, fibres beside its mesh, and those that lead back into it."""

    inputs: tuple[InputPath, ...]
    outputs: tuple[OutputPath, ...]
    fibres: tuple[FibrePath, ...] = ()
    loops: tuple[LoopPath, ...] = ()

    def input_of(self, transponder: str) -> InputPath:
        """Return the first input fed by a module. Raises ``KeyError`` if it feeds none."""
        for path in self.inputs:
            if path.transponder == transponder:
                return path
        raise KeyError(transponder)

    def output_of(self, transponder: str) -> OutputPath:
        """Return the first output that feeds a module's receiver. Raises ``KeyError`` if none does."""
        for path in self.outputs:
            if path.transponder == transponder:
                return path
        raise KeyError(transponder)

    def inputs_of(self, transponder: str) -> tuple[InputPath, ...]:
        """Return all inputs fed by a module: two behind a polarization splitter."""
        return tuple(path for path in self.inputs if path.transponder == transponder)

    def outputs_of(self, transponder: str) -> tuple[OutputPath, ...]:
        """Return all outputs that feed a module's receiver: two before a polarization combiner."""
        return tuple(path for path in self.outputs if path.transponder == transponder)
