"""Interface of the optical connections in a rehearsal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from lumion_hw.errors import DeviceError

LightCallback = Callable[[Mapping[str, Sequence[str]]], None]
"""Called with a mapping from each receiving server to the servers whose light arrives there.

The first one is its predecessor in the ring of the job, or an empty string if the predecessor's light does not arrive.
"""
FailureCallback = Callable[[str, str], None]
"""Called with the server whose light is lost, and the name of the detector."""
MilestoneCallback = Callable[[str, str], None]
"""Called with the name of a reached milestone, and whether its time is measured or emulated."""


class LightFabric(Protocol):
    """Interface of the optical connections between servers."""

    @property
    def servers(self) -> tuple[str, ...]:
        """All servers of the rehearsal, spares included."""

    @property
    def members(self) -> tuple[str, ...]:
        """Servers of the job at its start, in rank order."""

    def start(self, arrives: LightCallback, failed: FailureCallback) -> None:
        """Start reports: ``arrives`` is called now and when arriving light changes, ``failed`` when light is lost."""

    def cut(self, server: str, on_cut: Callable[[], None]) -> None:
        """Switch off the light that a server sends, and call ``on_cut`` at that instant."""

    def replace(self, failed: str, mark: MilestoneCallback) -> str:
        """Replace a failed server by a spare; return the spare when light was verified in both directions."""

    def restore(self) -> None:
        """Switch the light of all servers on and restore their first connections."""

    def emulated(self) -> tuple[str, ...]:
        """Return descriptions of the emulated parts."""

    def close(self) -> None:
        """End the reports and release the fabric; may be called twice."""


def ring_light(members: Sequence[str], dark: Collection[str]) -> dict[str, list[str]]:
    """Return the servers whose light arrives at each member of a ring with circuits in both directions."""
    neighbours = {
        name: {members[number - 1], members[(number + 1) % len(members)]} for number, name in enumerate(members)
    }
    return predecessor_first(members, {name: others - {*dark, ""} for name, others in neighbours.items() if name})


def predecessor_first(members: Sequence[str], arrives: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return, for each receiver, its predecessor in the ring or an empty string, and the other lit senders."""
    ordered: dict[str, list[str]] = {}
    for number, name in enumerate(members):
        lit, before = arrives.get(name, ()), members[number - 1]
        ordered[name] = [before if before in lit else "", *sorted(set(lit) - {before})]
    return ordered


class SwitchedLight:
    """A simulated optical switch in place of the mesh. A reconnected port is dark for ``switching_s`` seconds."""

    def __init__(self, members: Sequence[str], spares: Sequence[str], switching_s: float = 0.010) -> None:
        self._members, self._spares = tuple(members), tuple(spares)
        self._switching_s = switching_s
        self._guard = threading.Lock()
        self.restore()

    @property
    def servers(self) -> tuple[str, ...]:
        """All servers, spares included."""
        return (*self._members, *self._spares)

    @property
    def members(self) -> tuple[str, ...]:
        """Servers of the job, in rank order."""
        return self._members

    def restore(self) -> None:
        """Switch the light of all servers on and restore their first connections."""
        self._present_members, self._cut, self._failed_servers = list(self._members), set[str](), set[str]()
        if hasattr(self, "_arrives"):
            self._report_light()

    def start(self, arrives: LightCallback, failed: FailureCallback) -> None:
        """Start to report, for each server, the server whose light arrives there."""
        self._arrives, self._failed = arrives, failed
        self._report_light()

    def _report_light(self) -> None:
        self._arrives(ring_light(self._present_members, self._cut))

    def cut(self, server: str, on_cut: Callable[[], None]) -> None:
        """Switch off the light of a server. The loss is reported at once, without a time for its detection."""
        self._cut.add(server)
        on_cut()
        self._report_light()
        self._failed(server, "switch")

    def replace(self, failed: str, mark: MilestoneCallback) -> str:
        """Replace a server by the first free spare."""
        with self._guard:
            self._failed_servers.add(failed)
            unusable = {*self._present_members, *self._cut, *self._failed_servers}
            spare = next((name for name in self._spares if name not in unusable), None)
            if spare is None:
                raise DeviceError(f"no spare is left to replace {failed}")
            mark("spare_chosen", "measured")
            mark("route_found", "measured")
            index = self._present_members.index(failed)
            self._present_members[index] = ""
            self._arrives({})
            time.sleep(self._switching_s)
            self._present_members[index] = spare
            source = f"emulated: switching time {1e3 * self._switching_s:g} ms"
            mark("programmed", source)
            self._report_light()
            mark("settled", source)
            mark("proven", source)
            return spare

    def emulated(self) -> tuple[str, ...]:
        """Return descriptions of the emulated parts."""
        return (f"mesh and optics: a switch that takes {1e3 * self._switching_s:g} ms",)

    def close(self) -> None:
        """Do nothing."""
