"""Whose light enters and leaves the mesh where: the fixed optical wiring of a bench.

Written in the bench file, used by path set-up (budgets), by drivers' callers (which meter sees which circuit) and by
the emulator (the light itself).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tributary = Literal["x", "y"]
"""Which output of a polarization splitter, or input of a combiner."""


@dataclass(frozen=True)
class InputPath:
    """From a transponder's transmitter, or from a tunable laser, to a mesh port. Circuits begin at modules only.

    Attributes:
        transponder: Device name of the module; ``None`` where a laser is the source.
        port: Mesh port.
        polarization: Device name of the polarization controller on the way, if there is one.
        loss_db: Passive loss from the module to the mesh facet, controller included, facet excluded.
        gain_db: Gain of the booster amplifier on the way; 0 without one.
        polarimeter: Device name of the polarimeter on a tap just before the facet, if there is one.
        polarimeter_tap: Share of the power that goes to it; what the chip loses by it is part of ``loss_db``.
        tributary: Which output of a polarization splitter-rotator this is, turned to TE. A module of two tributaries
            has one input for each, and one of a single polarization may have both (diversity); without a splitter
            (``None``) the chip takes the share that is TE.
        laser: Device name of the tunable laser; ``None`` where a module is the source.
        noise_figure_db: Noise figure of the booster amplifier.
        amplifier: Device name of that amplifier, if it is a device: then it has the gain it gives, and ``gain_db`` is
            what is planned with.
        attenuator: Device name of the variable attenuator on the way, if there is one; what it takes is not part of
            ``loss_db``.
        attenuator_channel: Channel of that attenuator, from 1.
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
    amplifier: str | None = None
    attenuator: str | None = None
    attenuator_channel: int = 1

    @property
    def source(self) -> str:
        """Device name of the module or laser whose light it is."""
        return self.transponder or self.laser or ""


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
        attenuator: Device name of the variable attenuator between port and splitters, if there is one; what it takes
            is not part of ``loss_db``.
        attenuator_channel: Channel of that attenuator, from 1.
        analyzer: Device name of the spectrum analyser on a tap behind the attenuator, if there is one.
        analyzer_tap: Share of the power that goes to it; what the rest loses by it is part of ``loss_db``.
    """

    port: int
    transponder: str | None
    loss_db: float
    meter: str | None
    meter_channel: int | None
    tap_fraction: float
    tributary: Tributary | None = None
    attenuator: str | None = None
    attenuator_channel: int = 1
    analyzer: str | None = None
    analyzer_tap: float = 0.01


@dataclass(frozen=True)
class Wiring:
    """All inputs and outputs of a bench."""

    inputs: tuple[InputPath, ...]
    outputs: tuple[OutputPath, ...]

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
