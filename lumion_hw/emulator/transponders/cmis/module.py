"""An emulated CMIS module.

Follows OIF CMIS 5.2 and C-CMIS as far as public implementations agree (register map: ``lumion_hw.standards.cmis``);
times are in :mod:`.profiles`, the optical model in :mod:`.reception`. Bits that a profile does not advertise are not
writable and read as 0.

Unverified choices where the standards are open:

- The local oscillator of the receiver is the module's own laser. Both ends need the same frequency within 3.6 GHz.
- A laser tunes at the end of a transaction whenever the registers give another legal frequency, also after a write of
  the grid byte only. A request for the present channel completes at once.
- Before a data path is initialised, its receiver and transmitter raise no flags.
- The lanes of a deactivated data path may be regrouped if the trigger covers all of them; otherwise ConfigStatus is 6.
  AppSel 0 for only a part of a data path gives ConfigStatus 7. A trigger while a CDB command runs is ignored.
- A write of BankSelect alone takes effect with the next write of PageSelect. Writes over 8 bytes are not acknowledged.
- Flags of page 33h have no known masks and do not interrupt. Pages 31h, 32h, 38h, 3Bh and 41h to 45h are present and
  empty except for the fields of the register map.
- CDB 0040h: command map in reply bytes 138 to 169, longest duration in 170 and 171.
- Gated measurements, network paths and reading firmware back are neither implemented nor advertised.
- In low power and in a fault the module's own monitors keep running. Powers of lanes and link read -40 dBm on all
  pages, link quality and bias read 0, and statistics start again. Frozen statistics are kept.
- 14h:192-223 with selector 01h shows the counts of the pattern checkers, and 0 without a checker.
- Statistics have sub-intervals of 1 s; only sub-intervals with continuous lock count. Frozen values last until
  UnfreezeDone. Uncorrectable frames increase steeply at the FEC limit, with frames of 10^6 bits.
- Firmware of the ``400zr``: it accepts LPL blocks only, refuses a download with missing blocks (42h) and also resets on
  a "hitless" run. Firmware of the ``zr-plus-high-power``: it accepts LPL and EPL blocks, needs a password after each
  restart, and has no management for 0.5 s on a hitless run. A damaged or foreign image gives 60h; a repeated block is
  no error.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.transponders.agenda import Agenda
from lumion_hw.emulator.transponders.cmis.core import Core, Transition
from lumion_hw.emulator.transponders.cmis.faults import FAULTS
from lumion_hw.emulator.transponders.cmis.firmware import ModuleFirmware
from lumion_hw.emulator.transponders.cmis.host_port import WRITE_BYTES
from lumion_hw.emulator.transponders.cmis.memory import Flags, build_memory
from lumion_hw.emulator.transponders.cmis.optics import Emit, LaunchedLight, Optics, darkness, ignored
from lumion_hw.emulator.transponders.cmis.profiles import ModuleProfile, ModuleQuirks, Timing, find_profile
from lumion_hw.emulator.transponders.module_fault import FaultPanel
from lumion_hw.errors import LinkError
from lumion_hw.sessions.module.registers import IDENTITY_DEVICE, ModuleAbsentError, NotRespondingError
from lumion_hw.standards.cmis.codes import DataPathState, ModuleState
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.lower_memory import BANK_SELECT_BYTE

_LOG_LENGTH = 10_000


@dataclass(frozen=True)
class BusAccess:
    """Record of one host transaction on the module's bus.

    Attributes:
        at_s: Time of the transaction.
        operation: ``read`` or ``write``.
        page: The mapped page.
        offset: Byte address.
        data: The data.
    """

    at_s: float
    operation: str
    page: int
    offset: int
    data: bytes


class CmisModule:
    """One emulated CMIS module, an ``I2cDevice`` at address 50h. To be used by one thread at a time.

    The module follows the clock whenever it is accessed.

    Args:
        profile: Type of the module.
        rng: Source of fixed errors and noise.
        serial: Serial number, at most 16 ASCII characters, else ``ValueError``.
        quirks: Deviations from the standard.
        time_scale: Multiplies every duration of the module, but not the advertised durations; positive, else
            ``ValueError``.
        low_power_pin: Whether the host asserts the low-power pin at the start. Otherwise the module powers up and sends
            light by itself.
        optics: Returns the light at the receivers.
        emit: Called with the sent light at every change.
        warm: Whether the module was powered long before the clock's present time.
    """

    def __init__(
        self,
        profile: ModuleProfile,
        clock: Clock,
        rng: np.random.Generator,
        *,
        name: str = "",
        serial: str = "EMU0000001",
        quirks: ModuleQuirks | None = None,
        time_scale: float = 1.0,
        low_power_pin: bool = True,
        optics: Optics = darkness,
        emit: Emit = ignored,
        warm: bool = False,
    ) -> None:
        self._clock = clock
        quirks = quirks or ModuleQuirks()
        timing = quirks.timing(profile.timing).scaled(time_scale)
        memory = build_memory(profile, quirks, serial)
        # A warm module starts that long ago, and catches up with its start-up before its first use.
        agenda = Agenda(clock.now() - (_start_up_s(timing) if warm else 0.0))
        self._core = Core(name or profile.name, profile, timing, quirks, agenda, rng, memory, Flags(memory))
        self._firmware = ModuleFirmware(self._core, serial, low_power_pin, optics, emit)
        self._advancing = False
        self.faults = FaultPanel(
            self._core.name, FAULTS, self._core.faults, self._core.agenda, self._firmware.fault_changed, self.advance
        )
        self.log: deque[BusAccess] = deque(maxlen=_LOG_LENGTH)
        self._firmware.restart()
        self.advance()

    @classmethod
    def from_profile(
        cls,
        name: str,
        *,
        clock: Clock,
        seed: int = 0,
        device: str = "",
        serial: str = "EMU0000001",
        quirks: ModuleQuirks | None = None,
        time_scale: float = 1.0,
        low_power_pin: bool = True,
        optics: Optics = darkness,
        emit: Emit = ignored,
        warm: bool = False,
    ) -> CmisModule:
        """Return an emulated module of the type ``name``, such as ``400zr``; ``seed`` determines errors and noise.

        ``device`` is the device name, by default that of the profile. All other arguments are those of the constructor.
        Raises ``ConfigError`` if there is no CMIS profile of this name.
        """
        return cls(
            find_profile(name),
            clock,
            np.random.default_rng(seed),
            name=device,
            serial=serial,
            quirks=quirks,
            time_scale=time_scale,
            low_power_pin=low_power_pin,
            optics=optics,
            emit=emit,
            warm=warm,
        )

    # -- the host's bus ---------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Device name of the module in the bench file."""
        return self._core.name

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes from byte address ``offset`` on, in one transaction.

        Raises:
            ValueError: ``offset`` is not 0 to 255, or ``length`` is negative.
            ModuleAbsentError: The module is unplugged.
            NotRespondingError: The module does not acknowledge: it is initialising, in hold-off after a write, or busy.
        """
        _check_range(offset, length)
        self.acknowledge(f"read of {length} bytes at {offset}")
        self.seek(offset)
        page = self._firmware.port.page
        self.begin_read()
        data = self._firmware.port.next_bytes(length)
        self.log.append(BusAccess(self._core.now, "read", page, offset, data))
        return data

    def seek(self, offset: int) -> None:
        """Set the address pointer, after :meth:`acknowledge`."""
        self._firmware.port.pointer = offset

    def begin_read(self) -> None:
        """Begin a read at the address pointer, after :meth:`acknowledge`."""
        self._firmware.port.begin_read()

    def next_byte(self) -> int:
        """Return the byte at the address pointer, and advance the pointer."""
        return self._firmware.port.next_byte()

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` from byte address ``offset`` on, in one transaction.

        A write beyond :meth:`write_limit` is not acknowledged, and nothing is written. Raises the errors of
        :meth:`read`.
        """
        _check_range(offset, len(data))
        operation = f"write of {len(data)} bytes at {offset}"
        self.acknowledge(operation)
        limit = self.write_limit(offset)
        if len(data) > limit:
            raise self._not_responding(operation, f"the limit is {limit} bytes")
        page = self._firmware.port.page
        self._firmware.store(offset, bytes(data))
        self.log.append(BusAccess(self._core.now, "write", page, offset, bytes(data)))

    def write_limit(self, offset: int) -> int:
        """Return the largest number of bytes of a write at ``offset``."""
        return self._firmware.port.write_limit(offset)

    def acknowledge(self, operation: str = "access") -> None:
        """Advance the module to the present. Raises the errors of :meth:`read` if the module does not acknowledge."""
        self.advance()
        if not self.plugged:
            raise ModuleAbsentError(
                f"no module at 0x{IDENTITY_DEVICE:02X} ({operation})", device=self.name, hint="Plug in the module."
            )
        reason = self._silence_reason()
        if reason:
            raise self._not_responding(operation, reason)

    def _silence_reason(self) -> str:
        core, firmware = self._core, self._firmware
        if not firmware.machine.is_managed:
            return "its management interface is initialising"
        if core.now < firmware.port.busy_until_s:
            return "it is in hold-off after a write"
        if firmware.commands is not None and firmware.commands.blocks_the_bus:
            return "it is executing a CDB command"
        if core.faults.get("nack", 0.0) >= 1.0:
            core.faults["nack"] -= 1.0  # this access counts
            return "injected fault"
        return ""

    def _not_responding(self, operation: str, reason: str) -> NotRespondingError:
        return NotRespondingError(
            f"no acknowledgement from 0x{IDENTITY_DEVICE:02X} ({operation}): {reason}",
            device=self.name,
            hint="Repeat the access until it is acknowledged.",
        )

    # -- pins, plug and light ---------------------------------------------------------------------------------------

    @property
    def plugged(self) -> bool:
        """Whether the module is plugged in."""
        return self._firmware.is_plugged

    @property
    def interrupt(self) -> bool:
        """Whether the module asserts its interrupt pin."""
        self.advance()
        return self.plugged and self._firmware.machine.is_managed and self._core.flags.interrupt

    @property
    def state(self) -> ModuleState | None:
        """State of the module; ``None`` while its management interface initialises."""
        self.advance()
        return self._firmware.machine.state

    @property
    def history(self) -> tuple[Transition, ...]:
        """The most recent transitions of the module's state machines."""
        self.advance()
        return tuple(self._core.history)

    def data_path_states(self) -> dict[int, DataPathState]:
        """Return the states of all data paths, by first host lane."""
        self.advance()
        return {path.first_lane: path.state for path in self._firmware.paths.paths}

    def connect(self, *, optics: Optics | None = None, emit: Emit | None = None) -> None:
        """Replace the functions ``optics`` and ``emit``; an omitted one stays."""
        self.advance()
        self._firmware.optics = optics or self._firmware.optics
        if emit is not None:
            self._firmware.emit = emit
            for lane in range(1, self._core.profile.media_lanes + 1):
                emit(self.light(lane))

    def light(self, media_lane: int) -> LaunchedLight:
        """Return the light that a media lane sends now."""
        self.advance()
        return self._firmware.transmitters.light(media_lane)

    def set_low_power_pin(self, asserted: bool) -> None:
        """Set the level of the module's low-power pin."""
        self.advance()
        self._firmware.machine.low_power_pin = asserted
        self._firmware.settle()

    def set_host_signal(self, lanes: int, pattern: int | None = None) -> None:
        """Set the host lanes with a good electrical signal, and their test pattern (``None`` for none)."""
        self.advance()
        self._firmware.transmitters.host_signal = lanes
        self._firmware.diagnostics.host_pattern = pattern
        self._firmware.settle()

    def reset(self) -> None:
        """Pulse the reset pin: all volatile state returns to the defaults."""
        self.advance()
        if self.plugged:
            self._firmware.restart()

    def unplug(self) -> None:
        """Unplug the module: the light goes out at once and the module stops responding."""
        self.advance()
        self._firmware.remove_power()

    def plug(self) -> None:
        """Plug the module in, which starts it; no effect while it is plugged in."""
        self.advance()
        self._firmware.restore_power()

    def image(self) -> dict[str, object]:
        """Return the memory as hex strings, ``lower`` and ``pages`` (by two hex digits), without clearing flags."""
        self.advance()
        memory = self._core.memory
        for page in memory.pages:
            self._firmware.render(page)
        pages = {f"{page:02X}": memory.half(page).hex() for page in memory.pages if page is not None}
        return {"profile": self._core.profile.name, "lower": memory.half(None).hex(), "pages": pages}

    # -- time -------------------------------------------------------------------------------------------------------

    def advance(self, until_s: float | None = None) -> None:
        """Advance the module to the clock's present time, or to the earlier time ``until_s``."""
        if self._advancing:  # its light depends on another module, whose light depends on this module
            return
        self._advancing = True
        try:
            end_s = self._clock.now() if until_s is None else min(until_s, self._clock.now())
            agenda = self._core.agenda
            # One appointment at a time, with all its consequences, before the next is due.
            while agenda.run_next(end_s):
                self._firmware.settle()
            agenda.now = max(agenda.now, end_s)
        finally:
            self._advancing = False

    def next_event(self) -> float | None:
        """Return the next time at which the module changes without a host access; ``None`` if there is none."""
        due_s = self._core.agenda.next_s()
        return None if due_s is None or due_s == float("inf") else due_s


def _start_up_s(timing: Timing) -> float:
    return timing.management_init_s + timing.power_up_s + timing.dp_init_s + timing.tx_turn_on_s + 2 * timing.lock_s + 1


def _check_range(offset: int, length: int) -> None:
    if not 0 <= offset <= 0xFF or length < 0:
        raise ValueError(f"cannot access {length} bytes at byte address {offset}; addresses are 0 to 255")


class BusModule(Protocol):
    """The functions of a module that its I2C bus uses."""

    def acknowledge(self, operation: str = "access") -> None:
        """Advance the module to the present. Raises ``LinkError`` if the module does not acknowledge."""

    def seek(self, offset: int) -> None:
        """Set the address pointer."""

    def begin_read(self) -> None:
        """Begin a read at the address pointer."""

    def next_byte(self) -> int:
        """Return the byte at the address pointer, and advance the pointer."""

    def write_limit(self, offset: int) -> int:
        """Return the largest number of bytes of a write."""

    def write(self, offset: int, data: bytes) -> None:
        """Write in one transaction. Raises ``LinkError`` if the module does not acknowledge."""


class ModuleOnBus:
    """A CMIS module as an I2C target at 50h (see :class:`lumion_hw.emulator.transponders.i2c_bridge.I2cTarget`).

    A write takes effect at STOP or at a repeated START, as one transaction.
    """

    def __init__(self, module: BusModule) -> None:
        self._module = module
        self._address: int | None = None
        self._written = bytearray()
        self._writing = False

    def i2c_start(self, address: int, read: bool, at_s: float) -> bool:
        """Process START and an address byte. Return whether the module acknowledges."""
        self._end_write()
        if address != IDENTITY_DEVICE:
            return False
        try:
            self._module.acknowledge("START")
        except LinkError:
            return False
        self._writing = not read
        if read:
            self._module.begin_read()
        return True

    def i2c_write(self, value: int) -> bool:
        """Receive one byte: the memory address, then data. Return false and drop the write beyond the limit."""
        if not self._writing:
            return False
        if self._address is None:
            self._address = value
            return True
        # The whole write is lost, not only its tail: the module cannot interpret half of it.
        if len(self._written) >= self._module.write_limit(self._address):
            self._written.clear()
            self._writing = False
            return False
        self._written.append(value)
        return True

    def i2c_read(self) -> int:
        """Return the next byte of a read."""
        return self._module.next_byte()

    def i2c_stop(self, at_s: float) -> None:
        """Process STOP, which ends the transaction."""
        self._end_write()

    def _end_write(self) -> None:
        """Execute the received write. An address without data only sets the address pointer."""
        data, address, writing = bytes(self._written), self._address, self._writing
        self._written.clear()
        self._address, self._writing = None, False
        if address is None or not writing:
            return
        if not data:
            self._module.seek(address)
            return
        with contextlib.suppress(LinkError):  # the module stopped responding inside the transaction: the bytes are lost
            self._module.write(address, data)


class LinearView:
    """A module's memory as one linear file, as in the Linux kernel.

    Page 00h is at the file positions 0 to 255, byte b (128 to 255) of page p at (256 bank + p) 128 + b. Every access
    selects the page that it needs. Writes have at most 8 bytes.
    """

    def __init__(self, module: CmisModule) -> None:
        self._module = module

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes of the linear file. Raises the errors of ``CmisModule.read``."""
        data = bytearray()
        while len(data) < length:
            position = offset + len(data)
            address = self._map(position)
            # Stay within one half: addresses roll over at its end.
            size = min(length - len(data), HALF_BYTES - address % HALF_BYTES)
            data += self._module.read(address, size)
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes to the linear file. Raises the errors of ``CmisModule.write``."""
        position = 0
        while position < len(data):
            address = self._map(offset + position)
            size = min(len(data) - position, HALF_BYTES - address % HALF_BYTES, WRITE_BYTES)
            self._module.write(address, data[position : position + size])
            position += size

    def _map(self, position: int) -> int:
        if position < HALF_BYTES:
            return position
        bank, page = divmod((position - HALF_BYTES) // HALF_BYTES, 256)
        self._module.write(BANK_SELECT_BYTE, bytes([bank, page]))
        return HALF_BYTES + position % HALF_BYTES
