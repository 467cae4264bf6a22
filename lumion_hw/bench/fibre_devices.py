"""Reads the present losses and gains of the attenuators, switches and amplifiers in the fibres of a bench."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import BLOCKED_DB, InlineDevice, InputPath, OutputPath, Wiring

if TYPE_CHECKING:
    from lumion_hw.bench.file.model import BenchModel
    from lumion_hw.interfaces.amplifier import OpticalAmplifier
    from lumion_hw.interfaces.attenuator import VariableAttenuator
    from lumion_hw.interfaces.optical_switch import OpticalSwitch

PathT = TypeVar("PathT", InputPath, OutputPath)


class _OpenBench(Protocol):
    """The properties of an open bench that the functions of this module use."""

    model: BenchModel
    wiring: Wiring

    @property
    def devices(self) -> Mapping[str, Any]:
        """All open devices by name."""

    @property
    def attenuators(self) -> Mapping[str, VariableAttenuator]:
        """Open attenuators by name."""

    @property
    def switches(self) -> Mapping[str, OpticalSwitch]:
        """Open optical switches by name."""

    @property
    def amplifiers(self) -> Mapping[str, OpticalAmplifier]:
        """Open optical amplifiers by name."""


class _WithLosses(Protocol):
    """A function that adds the losses of the devices in a path; the planned gain of amplifiers is in dB."""

    def __call__(self, path: PathT, planned_gain_db: float) -> PathT: ...


def wiring_with_device_losses(bench: _OpenBench, driven_switches: Collection[str] = ()) -> Wiring:
    """Return the wiring of an open bench with the present losses and gains of the devices in its fibres.

    A device that is not open counts as lossless, and a switch in ``driven_switches`` as connected. The gain of an
    amplifier is its gain setting, otherwise the measured gain, otherwise ``gain_db`` of the bench file.

    Raises:
        LumionError: A query failed.
    """
    wiring = bench.wiring
    if not any(path.through for path in wiring.inputs) and not any(path.through for path in wiring.outputs):
        return wiring
    add_losses = _losses_adder(bench, driven_switches)
    return replace(
        wiring,
        inputs=tuple(add_losses(path, path.gain_db) for path in wiring.inputs),
        outputs=tuple(add_losses(path, 0.0) for path in wiring.outputs),
    )


def outputs_with_device_losses(bench: _OpenBench, outputs: Sequence[OutputPath]) -> tuple[OutputPath, ...]:
    """Return outputs with the present losses and gains of the devices in their fibres.

    Raises:
        ConfigError: A device in one of the fibres was not opened.
        LumionError: A query failed.
    """
    for part in (part for path in outputs for part in path.through):
        if part.device not in bench.devices:
            hint = "Its loss is needed: add it to 'only', or leave out 'only'."
            raise ConfigError("this device is in the light path but was not opened", device=part.device, hint=hint)
    add_losses = _losses_adder(bench)
    return tuple(add_losses(path, 0.0) for path in outputs)


def _losses_adder(bench: _OpenBench, driven_switches: Collection[str] = ()) -> _WithLosses:
    connections = cache(lambda name: bench.switches[name].connections())
    gain_db = cache(lambda name: _gain_db(bench, name))

    def loss_db(part: InlineDevice, planned_gain_db: float) -> float:
        """Return the loss of a device at its present settings; ``BLOCKED_DB`` if it blocks the path."""
        insertion_db: float = getattr(bench.model.devices[part.device], "insertion_loss_db", 0.0)
        if part.device in bench.attenuators:
            settings = bench.attenuators[part.device].settings(part.channel)
            return insertion_db + settings.attenuation_db if settings.passing else BLOCKED_DB
        if part.device in driven_switches:
            return insertion_db
        if part.device in bench.switches:
            return insertion_db if connections(part.device).get(part.channel) == part.exit_port else BLOCKED_DB
        if part.device in bench.amplifiers:
            measured_db = gain_db(part.device)
            return 0.0 if measured_db is None else planned_gain_db - measured_db
        return 0.0

    def add_losses(path: PathT, planned_gain_db: float) -> PathT:
        inline_losses_db = tuple(loss_db(part, planned_gain_db) for part in path.through)
        return replace(path, inline_losses_db=inline_losses_db, loss_db=path.loss_db + sum(inline_losses_db))

    return add_losses


def _gain_db(bench: _OpenBench, name: str) -> float | None:
    """Return the gain of an amplifier, or ``None`` if unknown. An amplifier that is off blocks the light."""
    amplifier = bench.amplifiers[name]
    settings = amplifier.settings()
    if not settings.enabled:
        return -BLOCKED_DB
    if settings.gain_db is not None:
        return settings.gain_db
    state = amplifier.state()
    if state.input_power_dbm is None or state.output_power_dbm is None:
        return None
    return state.output_power_dbm - state.input_power_dbm
