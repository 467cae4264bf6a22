"""What attenuators, switches and amplifiers in the fibres do to the light, as they are set at the moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import BLOCKED_DB, InlineDevice, InputPath, OutputPath, Wiring

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench

PathT = TypeVar("PathT", InputPath, OutputPath)


class _AsSet(Protocol):
    """Counts a path as it is set."""

    def __call__(self, path: PathT, planned_gain_db: float) -> PathT: ...


def wiring_as_set(bench: Bench) -> Wiring:
    """Return the wiring of an open bench, with what the devices in its fibres take or give counted in.

    Only benches that have such devices are asked anything; one that is not open counts nothing. An amplifier gives
    what it holds or, where it holds no gain, what it measures; where it measures none, the ``gain_db`` of the file.

    Raises:
        LumionError: What a device raises that is asked.
    """
    wiring = bench.wiring
    if not any(path.through for path in wiring.inputs) and not any(path.through for path in wiring.outputs):
        return wiring
    as_set = _as_set(bench)
    return replace(
        wiring,
        inputs=tuple(as_set(path, path.gain_db) for path in wiring.inputs),
        outputs=tuple(as_set(path, 0.0) for path in wiring.outputs),
    )


def outputs_as_set(bench: Bench, outputs: Sequence[OutputPath]) -> tuple[OutputPath, ...]:
    """Return some outputs, with what the devices in their fibres take or give counted in, as in the whole wiring.

    Raises:
        ConfigError: One of these devices was not opened.
        LumionError: What a device raises that is asked.
    """
    for part in (part for path in outputs for part in path.through):
        if part.device not in bench.devices:
            hint = "Leave out 'only', or name it: what it does to the light has to be counted."
            raise ConfigError("the device in the light was not opened", device=part.device, hint=hint)
    as_set = _as_set(bench)
    return tuple(as_set(path, 0.0) for path in outputs)


def _as_set(bench: Bench) -> _AsSet:
    """Return what counts a path as it is set; every switch and amplifier is asked once."""
    connections = cache(lambda name: bench.switches[name].connections())
    gain_db = cache(lambda name: _gain_db(bench, name))

    def loss_db(part: InlineDevice, planned_gain_db: float) -> float:
        insertion_db: float = getattr(bench.model.devices[part.device], "insertion_loss_db", 0.0)
        if part.device in bench.attenuators:
            settings = bench.attenuators[part.device].settings(part.channel)
            return insertion_db + settings.attenuation_db if settings.passing else BLOCKED_DB
        if part.device in bench.switches:
            return insertion_db if connections(part.device).get(part.channel) == part.exit_port else BLOCKED_DB
        if part.device in bench.amplifiers:
            found_db = gain_db(part.device)
            return 0.0 if found_db is None else planned_gain_db - found_db
        return 0.0

    def as_set(path: PathT, planned_gain_db: float) -> PathT:
        inline_losses_db = tuple(loss_db(part, planned_gain_db) for part in path.through)
        return replace(path, inline_losses_db=inline_losses_db, loss_db=path.loss_db + sum(inline_losses_db))

    return as_set


def _gain_db(bench: Bench, name: str) -> float | None:
    """Return the gain of an amplifier, ``None`` if nobody knows; one that is off lets nothing pass."""
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
