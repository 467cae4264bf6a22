"""Declaration of a kind of device: driver, emulator, bench-file entry and discovery.

Kinds are registered as entry points of the group ``lumion_hw.kinds`` (docs/decisions/0011-device-kinds.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from lumion_hw.bench.file.checks import BenchData, Check, no_check
from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.address import DEFAULT_BAUD

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.emulator.wires.mains import Switchable


@dataclass(frozen=True)
class DiscoveryQuery:
    """A harmless query that ``lumion discover`` sends, and the function that interprets the reply.

    Attributes:
        bauds: Baud rates to try on a serial line.
        request: Bytes to send.
        identify: Returns the identity of the instrument and further bench-file keys; ``None`` if the bytes do not
            answer this query.
    """

    name: str
    bauds: tuple[int, ...]
    request: bytes
    identify: Callable[[bytes], tuple[str, dict[str, Any]] | None]


@dataclass(frozen=True)
class ScpiIdentity:
    """The reply to ``*IDN?`` by which a kind of SCPI instrument is recognized.

    Attributes:
        vendor: Regular expression to find in the vendor, ignoring case.
        model: Regular expression for the beginning of the model, ignoring case.
        names_model: Whether the bench-file entry has a key ``model``.
    """

    vendor: str
    model: str
    names_model: bool

    def fits(self, vendor: str, model: str) -> bool:
        """Return whether an instrument with this vendor and model is of this kind."""
        match = re.search(self.vendor, vendor, re.IGNORECASE) and re.match(self.model, model, re.IGNORECASE)
        return match is not None


def _no_items(*_: Any) -> tuple[()]:
    return ()


@dataclass(frozen=True, kw_only=True)
class DeviceKind:
    """A kind of device.

    Attributes:
        title: Description, for the table in the documentation.
        model: Model of the bench-file entry; ``kind: Literal["..."]`` is the name of the kind.
        open: Opens, identifies and sets up a device: ``open(name, model, link, clock)``. The link is not open before.
        module_connections: Whether ``open`` also accepts a connection to a pluggable module instead of a link.
        emulate: Makes an emulated device: ``emulate(bench, name, model)``; ``None`` if there is no emulator.
        baud: Default baud rate.
        wire: Wire on which ``lumion emulate`` serves the device.
        hislip: Whether ``lumion emulate`` also serves the device by HiSLIP.
        scpi: The reply to ``*IDN?``; ``None`` for other devices.
        queries: Returns discovery queries other than ``*IDN?``.
        faults: Returns the scripted faults that only this kind has.
        channels: For a power meter or attenuator: returns the number of channels of a bench-file entry, and the model
            name for messages; ``None`` if the entry does not give them. The entry may contain mistakes.
        media_lanes: For a pluggable module: returns how many media lanes of an entry can be wired one by one; 1 for a
            module with a single fibre each way. The entry may contain mistakes.
        check: Yields contradictions between the entry of a device and the rest of the bench file.
    """

    title: str
    role: Role
    model: type[DeviceModel]
    open: Callable[[str, Any, Any, Clock], Any]
    module_connections: bool = False
    emulate: Callable[[EmulatedBench, str, Any], Switchable] | None = None
    baud: int = DEFAULT_BAUD
    wire: Literal["tcp", "pty"] = "tcp"
    hislip: bool = False
    scpi: ScpiIdentity | None = None
    queries: Callable[[], Sequence[DiscoveryQuery]] = _no_items
    faults: Callable[[], Sequence[ScriptedFault]] = _no_items
    channels: Callable[[Mapping[Any, Any]], tuple[int, str] | None] = lambda _: None
    media_lanes: Callable[[Mapping[Any, Any]], int] = lambda _: 1
    check: Callable[[BenchData, str], Iterator[Check]] = no_check

    @cached_property
    def name(self) -> str:
        """Name of the kind in bench files."""
        (name,) = get_args(self.model.model_fields["kind"].annotation)
        return str(name)
