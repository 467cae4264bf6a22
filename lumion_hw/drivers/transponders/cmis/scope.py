"""Selects the data paths that a driver uses."""

from __future__ import annotations

from dataclasses import dataclass

from lumion_hw.drivers.transponders.cmis import data_paths as dp
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.drivers.transponders.cmis.data_paths import DataPath
from lumion_hw.errors import ConfigError


@dataclass(frozen=True)
class Scope:
    """Data paths that a driver uses; by default all of the module.

    Attributes:
        first_lane: First host lane of the only selected path; ``None`` to select more.
        media_lane: Media lane that the selected paths use; ``None`` for any.
    """

    first_lane: int | None = None
    media_lane: int | None = None

    @property
    def is_module(self) -> bool:
        """Whether the driver uses all data paths of the module."""
        return self.first_lane is None and self.media_lane is None

    def has(self, path: DataPath) -> bool:
        """Return whether the driver uses this data path."""
        if self.first_lane is not None:
            return path.first_lane == self.first_lane
        return self.media_lane is None or self.media_lane in path.media_lanes

    def paths(self, module: ModuleContext) -> tuple[DataPath, ...]:
        """Read the data paths in use that this driver uses."""
        return tuple(path for path in dp.data_paths(module) if self.has(path))

    def media_lane_of(self, module: ModuleContext) -> int:
        """Return the media lane for readings."""
        if self.media_lane is not None:
            return self.media_lane
        lanes = module.advertised.media_lanes
        if len(lanes) == 1:  # known without reading
            return lanes[0]
        first = next((path.media_lanes[0] for path in self.paths(module) if path.media_lanes), None)
        return first or self._offered_lane(module)

    def _offered_lane(self, module: ModuleContext) -> int:
        for application in module.advertised.applications:
            if self.first_lane in application.first_host_lanes and self.first_lane is not None:
                lanes = dp.media_lanes_of(application, self.first_lane)
                if lanes:
                    return lanes[0]
        return 1

    def first_lane_of(self, module: ModuleContext, number: int, requested: int | None) -> int:
        """Return the first host lane for an application.

        Raises ``ConfigError`` if this path cannot begin on the requested lane, or the application cannot use the media
        lane.

        Args:
            module: Open module.
            number: Number of the application in the module's list (AppSel code).
            requested: Host lane requested by the caller, or ``None``.
        """
        if self.first_lane is not None:
            if requested not in (None, self.first_lane):
                raise module.error(
                    ConfigError,
                    f"the path from host lane {self.first_lane} cannot begin on host lane {requested}",
                    f"Use path({requested}), or the driver of the module.",
                )
            return self.first_lane
        if requested is not None:
            return requested
        application = next((item for item in module.advertised.applications if item.number == number), None)
        starts = application.first_host_lanes if application else ()
        if application is None or self.media_lane is None:
            return starts[0] if starts else 1
        for start in starts:
            if self.media_lane in dp.media_lanes_of(application, start):
                return start
        raise module.error(
            ConfigError,
            f"application {number} does not use media lane {self.media_lane}",
            "Give the first host lane, or use a different application.",
        )

    def suffix(self) -> str:
        """Return a description of the selection for messages; empty for the whole module."""
        if self.first_lane is not None:
            return f" from host lane {self.first_lane}"
        return "" if self.media_lane is None else f" on media lane {self.media_lane}"
