"""What a kind of device is: everything the package has to know of it, in one place.

A kind is declared once, in a file of :mod:`lumion_hw.bench.kinds` or of another package, and registered as an entry
point of the group ``lumion_hw.kinds`` (:mod:`lumion_hw.bench.file.known_kinds`, docs/decisions/0011-device-kinds.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from lumion_hw.bench.file.checks import BenchData, Check
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
    """One harmless question of `lumion discover`, and how its answer looks.

    Attributes:
        name: What it asks for, for logs.
        bauds: Line rates to ask at, where there is a serial line.
        asked: Bytes to send.
        recognise: Returns what an answer says of the device, and the keys of its entry in a bench file besides kind
            and address; ``None`` if it is no answer to this question.
    """

    name: str
    bauds: tuple[int, ...]
    asked: bytes
    recognise: Callable[[bytes], tuple[str, dict[str, Any]] | None]


@dataclass(frozen=True)
class ScpiIdentity:
    """How a SCPI instrument of a kind answers ``*IDN?``.

    Attributes:
        vendor: Regular expression found in the vendor, in any case.
        model: Regular expression that the model begins with, in any case.
        names_model: The answered model goes into the entry of a bench file.
    """

    vendor: str
    model: str
    names_model: bool

    def fits(self, vendor: str, model: str) -> bool:
        """Return whether an instrument that says this is of the kind."""
        found = re.search(self.vendor, vendor, re.IGNORECASE) and re.match(self.model, model, re.IGNORECASE)
        return found is not None


def _nothing(*_: Any) -> tuple[()]:
    return ()


@dataclass(frozen=True, kw_only=True)
class DeviceKind:
    """All that a kind is. Drivers and emulator are imported by the functions only, when a device is opened or emulated.

    Attributes:
        title: What it is, for the table of docs/bench-file.md.
        role: What it is for on a bench.
        model: Its entry in a bench file: keys, units, limits; ``kind: Literal["..."]`` gives the kind its name.
        open: Opens, identifies and sets up a device through its driver: name, model, link, clock. The link is not yet
            open.
        module_connections: It takes the connections of pluggable modules in place of a link, too.
        emulate: Makes an emulated device: emulated bench, name, model. ``None`` if it cannot be emulated.
        baud: Line rate of its serial port as it is delivered, for addresses that give none.
        wire: What `lumion emulate` serves it on.
        hislip: `lumion emulate` serves it by HiSLIP as well.
        scpi: How it answers ``*IDN?``, if it does.
        questions: Returns how else it is found.
        faults: Returns what can go wrong with one device of this kind; supply and cable of every device are known.
        channels: Of a power meter or an attenuator, how many channels an entry of a bench file means and what they
            belong to; ``None`` where the file does not tell. The entry may have mistakes.
        check: Yields what does not fit between a device of this name and the rest of the file.
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
    questions: Callable[[], Sequence[DiscoveryQuery]] = _nothing
    faults: Callable[[], Sequence[ScriptedFault]] = _nothing
    channels: Callable[[Mapping[Any, Any]], tuple[int, str] | None] = lambda _: None
    check: Callable[[BenchData, str], Iterator[Check]] = lambda _bench, _name: iter(())

    @cached_property
    def name(self) -> str:
        """What the bench file calls it."""
        (name,) = get_args(self.model.model_fields["kind"].annotation)
        return str(name)
