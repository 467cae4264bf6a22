"""Light of one laser that an optical switch leads to one input of the mesh after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lumion_hw.interfaces.optical_switch import OpticalSwitch
from lumion_hw.interfaces.wiring import InlineDevice, InputPath

if TYPE_CHECKING:
    from calibration.measure.bench_probe import LightSource


def switch_passages(path: InputPath) -> tuple[InlineDevice, ...]:
    """Return the passages of an input's light through switches, the one next to the source first."""
    return tuple(part for part in path.through if part.exit_port is not None)


def are_alternatives(path: InputPath, other: InputPath) -> bool:
    """Return whether the light of a source reaches only one of two inputs at a time, depending on a switch."""
    exits = {(part.device, part.channel): part.exit_port for part in switch_passages(path)}
    return any(
        exits.get((part.device, part.channel), part.exit_port) != part.exit_port for part in switch_passages(other)
    )


def driven_switches(inputs: Iterable[InputPath]) -> frozenset[str]:
    """Return the switches that a calibration changes, because they lead one source to several inputs."""
    paths = list(inputs)
    return frozenset(
        part.device
        for path in paths
        if any(other.source == path.source and are_alternatives(path, other) for other in paths)
        for part in switch_passages(path)
    )


class SwitchedSource:
    """Light source at one of the inputs to which a switch can lead its light.

    Args:
        source: The laser or module.
        path: The input.
        switches: Open switches of the bench, by name.
    """

    def __init__(self, source: LightSource, path: InputPath, switches: Mapping[str, OpticalSwitch]) -> None:
        self._source, self._path, self._switches = source, path, switches

    @property
    def spread_hz(self) -> float:
        """Standard deviation of the true frequency from the reported one."""
        return self._source.spread_hz

    def on(self) -> None:
        """Lead the light to the input, and switch the source on.

        Raises:
            BusyError: The output of the switch belongs to another input of the switch.
            VerifyError: The switch does not make the connection.
        """
        for part in switch_passages(self._path):
            switch, exit_port = self._switches[part.device], part.exit_port
            present = switch.connections().get(part.channel)
            if present == exit_port or exit_port is None:
                continue
            if present is not None:
                switch.disconnect([part.channel])
            switch.connect({part.channel: exit_port})
        self._source.on()

    def off(self) -> None:
        """Switch the source off; the connections of the switch stay."""
        self._source.off()

    def launched_dbm(self) -> float:
        """Return the reported launch power of the source."""
        return self._source.launched_dbm()

    def frequency_hz(self) -> float:
        """Return the optical frequency that the source reports."""
        return self._source.frequency_hz()

    def tunable_hz(self) -> tuple[float, float] | None:
        """Return the lowest and highest frequency of the source; ``None`` if it is not tunable."""
        return self._source.tunable_hz()

    def tune(self, frequency_hz: float) -> float:
        """Tune the source to the nearest possible frequency and return the frequency it reports."""
        return self._source.tune(frequency_hz)
