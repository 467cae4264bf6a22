"""Which module's light enters and leaves the mesh where: the fixed optical wiring of a bench.

Written in the bench file, used by path set-up (budgets), by drivers' callers (which meter sees which circuit) and by
the emulator (the light itself).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InputPath:
    """From a transponder's transmitter to a mesh port.

    Attributes:
        transponder: Device name of the module.
        port: Mesh port.
        polarization: Device name of the polarization controller on the way, if there is one.
        loss_db: Passive loss from the module to the mesh facet, controller included, facet excluded.
        gain_db: Gain of the booster amplifier on the way; 0 without one.
    """

    transponder: str
    port: int
    polarization: str | None
    loss_db: float
    gain_db: float


@dataclass(frozen=True)
class OutputPath:
    """From a mesh port to a transponder's receiver.

    Attributes:
        port: Mesh port.
        transponder: Device name of the module.
        loss_db: Passive loss from the facet to the splitter.
        meter: Device name of the power meter on the tap, if there is one.
        meter_channel: Channel of that meter, from 1.
        tap_fraction: Share of the power that goes to the meter; the rest goes to the receiver.
    """

    port: int
    transponder: str
    loss_db: float
    meter: str | None
    meter_channel: int | None
    tap_fraction: float


@dataclass(frozen=True)
class Wiring:
    """All inputs and outputs of a bench."""

    inputs: tuple[InputPath, ...]
    outputs: tuple[OutputPath, ...]

    def input_of(self, transponder: str) -> InputPath:
        """Return the input fed by a module. Raises ``KeyError`` if it feeds none."""
        for path in self.inputs:
            if path.transponder == transponder:
                return path
        raise KeyError(transponder)

    def output_of(self, transponder: str) -> OutputPath:
        """Return the output that feeds a module's receiver. Raises ``KeyError`` if none does."""
        for path in self.outputs:
            if path.transponder == transponder:
                return path
        raise KeyError(transponder)
