"""Parts of a mesh that are calibrated alone: the sources and monitors whose light passes nothing else.

Heaters outside the part stay off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.measure.light_sources import dual_input_ports
from calibration.model.illuminated_part import illuminated_part
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import InputPath
from lumion_hw.mesh.layout.topology import MeshTopology


@dataclass(frozen=True)
class MeshPart:
    """A part of a mesh that can be calibrated alone; of a source with two ports, ``sources`` has the first one."""

    pucs: tuple[int, ...]
    sources: tuple[int, ...]
    monitors: tuple[int, ...]


@dataclass(frozen=True)
class LightPaths:
    """Light of a bench.

    Attributes:
        sources: Ports where light can enter; of a source with two ports, the first one.
        monitors: Ports with a monitor.
        seconds: By port of a source, the second port that it feeds at the same time.
    """

    mesh: MeshTopology
    sources: tuple[int, ...]
    monitors: tuple[int, ...]
    seconds: Mapping[int, int]

    @classmethod
    def of(cls, mesh: MeshTopology, inputs: Sequence[InputPath], monitors: Sequence[int]) -> LightPaths:
        """Return the light of a bench with these inputs and monitors."""
        seconds = dual_input_ports(inputs)
        first = [path.port for path in inputs if path.port not in seconds.values()]
        return cls(mesh, tuple(dict.fromkeys(first)), tuple(monitors), seconds)

    def illuminated_pucs(self, sources: Sequence[int], monitors: Sequence[int]) -> frozenset[int]:
        """Return the PUCs that light of some sources passes on its way to some monitors."""
        entries = (*sources, *(self.seconds[port] for port in sources if port in self.seconds))
        return frozenset(np.flatnonzero(illuminated_part(self.mesh, entries, tuple(monitors)).pucs).tolist())

    def part_of_circuit(self, sources: Sequence[int], monitors: Sequence[int]) -> MeshPart:
        """Return the part that circuits from ports with a source to ports with a monitor can use.

        Raises:
            ConfigError: A port has no source or no monitor, or no path connects them.
        """
        for ports, usable_ports, problem, what in (
            (sources, self.sources, "no light can enter at port", "source"),
            (monitors, self.monitors, "no monitor reads the light at port", "monitor"),
        ):
            if unusable := [port for port in ports if port not in usable_ports]:
                raise ConfigError(
                    f"{problem} {unusable[0]}, so its circuit cannot be calibrated",
                    hint=f"Ports with a {what}: {_format_numbers(usable_ports)}.",
                )
        pucs = self.illuminated_pucs(sources, monitors)
        if not pucs:
            ends = " to port ".join(_format_numbers(ports) for ports in (sources, monitors))
            raise ConfigError(f"no path leads from port {ends}", hint="Choose other ports.")
        return MeshPart(tuple(sorted(pucs)), tuple(sources), tuple(monitors))

    def part_of_pucs(self, pucs: Collection[int]) -> MeshPart:
        """Return the part with the given PUCs.

        Raises:
            ConfigError: A PUC does not exist or cannot be calibrated within this part; the message says why.
        """
        part_pucs = frozenset(pucs)
        if unknown := sorted(puc for puc in part_pucs if not 0 <= puc < self.mesh.n_pucs):
            raise ConfigError(
                f"PUCs {_format_numbers(unknown)} do not exist", hint=f"This mesh has PUCs 0 to {self.mesh.n_pucs - 1}."
            )
        sources: tuple[int, ...] = ()
        monitors: tuple[int, ...] = ()
        while True:
            # All chosen sources are read with all chosen monitors, so ports are added while the light stays inside.
            unused = [port for port in self.sources if port not in sources]
            options = [((*sources, port), monitors or (other,)) for port in unused for other in self.monitors]
            options += [(sources, (*monitors, port)) for port in self.monitors if sources and port not in monitors]
            part_ports = [
                (len(reached), -len(option[0]), option)
                for option in options
                if (reached := self.illuminated_pucs(*option)) and reached <= part_pucs
            ]
            if not part_ports:
                break
            _, _, (sources, monitors) = max(part_ports)
        reached = self.illuminated_pucs(sources, monitors) if sources else frozenset()
        if missing := sorted(part_pucs - reached):
            raise self._unreachable_error(missing[0], part_pucs)
        return MeshPart(
            tuple(sorted(part_pucs)), tuple(sorted(sources)), tuple(sorted(monitors, key=self.monitors.index))
        )

    def _unreachable_error(self, puc: int, part_pucs: frozenset[int]) -> ConfigError:
        options = [self.illuminated_pucs([source], [monitor]) for source in self.sources for monitor in self.monitors]
        outside = sorted((sorted(reached - part_pucs) for reached in options if puc in reached), key=len)
        if not outside:
            return ConfigError(
                f"PUC {puc} cannot be calibrated: no light passes it on the way to a monitor",
                hint="Add an input or a monitor; `lumion-calibrate plan` says at which port.",
            )
        nearest = outside[0]
        if not nearest:
            return ConfigError(
                f"PUC {puc} cannot be calibrated together with the rest of this part, because no common inputs and "
                "monitors exist",
                hint="Calibrate smaller parts one after the other, and join them with --join.",
            )
        if self.mesh.faces:
            return ConfigError(
                f"this part cannot be calibrated alone: all light of PUC {puc} also passes {len(nearest)} PUCs outside "
                "the part, whose heaters change it",
                hint="Calibrate the whole mesh: in a mesh where light circulates, all its PUCs change all light.",
            )
        return ConfigError(
            f"this part cannot be calibrated alone: all light of PUC {puc} also passes PUCs "
            f"{_format_numbers(nearest)}, whose heaters change it",
            hint=f"Add PUCs {_format_numbers(nearest)} to the part.",
        )


def _format_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
