"""Access to the memory of a QSFP module: fields by name, flags, and the checks of the identity."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from lumion_hw.clock import Clock
from lumion_hw.errors import DeviceError, DeviceErrors, FrameError, IdentityError, VerifyError
from lumion_hw.interfaces import StickyFlag
from lumion_hw.sessions.module.pages import ModulePages, no_answer
from lumion_hw.standards.cmis import codes as sff8024
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.interface_ids import CMIS_IDENTIFIERS
from lumion_hw.standards.registers import checksum_matches, raw, text
from lumion_hw.standards.sff8472.codes import SFF8472_IDENTIFIERS
from lumion_hw.standards.sff8636.codes import SFF8636_IDENTIFIERS
from lumion_hw.standards.sff8636.registers import (
    CHECKSUMS,
    FLAG_BYTES,
    FLAGS,
    IDENTITY_PAGE,
    LANES,
    FieldKey,
    QsfpField,
    find,
)

CONTROL_S = 0.1
"""Time in s until a control bit takes effect (SFF-8679, Tx disable assert time)."""
TOLERATED = ("CC_BASE",)
"""Checksums that may be wrong with only a warning, because some modules store them wrongly."""
_POLL_S = 0.02
_COVERED = {
    "CC_BASE": "kind, vendor, power class and wavelength",
    "CC_EXT": "serial number, options and kinds of monitor",
}


class QsfpMemory(DeviceErrors):
    """Memory of one QSFP module.

    Args:
        pages: Memory of the module.
        clock: Clock for waiting times.
        accepted: Names of the checksums that may be wrong.

    Attributes:
        warnings: Warnings about accepted checksums, by checksum.
    """

    def __init__(self, pages: ModulePages, clock: Clock, device: str, accepted: Collection[str] = TOLERATED) -> None:
        self.pages = pages
        self.device = device
        self.warnings: dict[str, str] = {}
        self._accepted = accepted
        self._clock = clock

    @property
    def address(self) -> str:
        """Address of the module."""
        return self.pages.name

    def read_identity(self) -> tuple[bytes, bytes]:
        """Return the lower memory without its flags, and page 00h, after checking identifier and checksums.

        Raises:
            NotRespondingError: The bus returns only FFh, as without a module.
            IdentityError: The module does not follow SFF-8636.
            DeviceError: A checksum in the memory is wrong and not accepted.
            FrameError: A checksum is wrong and a second reading differs, so the bus is faulty.
        """
        with self.pages.transaction():
            lower = self.lower()
            page = self.pages.read_page(IDENTITY_PAGE, HALF_BYTES, HALF_BYTES)
            self._check_kind(lower, page)
            self._check_checksums(page)
        return lower, page

    def lower(self) -> bytes:
        """Return the 128 bytes of the lower memory with the latched flags, which reading would clear, set to 0."""
        with self.pages.transaction():
            data = self.pages.read_page(None, 0, FLAG_BYTES.start) + bytes(len(FLAG_BYTES))
            return data + self.pages.read_page(None, FLAG_BYTES.stop, HALF_BYTES - FLAG_BYTES.stop)

    def guard(self, serial: str, part_number: str) -> None:
        """Raise ``IdentityError`` if the module is not the one with this serial and part number any longer."""
        first, last = find("part_number"), find("serial_number")
        data = self.pages.read_page(IDENTITY_PAGE, first.byte, last.end - first.byte)
        actual = text(data[: first.length]), text(data[-last.length :])
        if actual != (part_number, serial):
            raise self.error(
                IdentityError,
                f"expected {part_number} with serial {serial}, found {actual[0]} with serial {actual[1]}: the module "
                "was replaced; nothing was written",
                hint="Call identify() to use the new module, or close the driver.",
            )

    def bit(self, name: str, lane: int | None = None) -> bool:
        """Return a bit that reading does not clear."""
        field = find(name, lane)
        return bool(raw(field, self.pages.read_page(field.space, field.byte, 1)))

    def lanes(self, name: str) -> tuple[int, ...]:
        """Return the values of a field of all lanes, read in one transfer."""
        fields = [find(name, lane) for lane in LANES]
        first, end = min(field.byte for field in fields), max(field.end for field in fields)
        data = self.pages.read_page(fields[0].space, first, end - first)
        return tuple(raw(field, data[field.byte - first : field.end - first]) for field in fields)

    def write(self, settings: Iterable[tuple[QsfpField, int]]) -> None:
        """Write fields of one byte, keep its other bits, and wait until the byte reads back.

        Raises ``VerifyError`` if the module does not take the value.
        """
        pairs = list(settings)
        page, byte = pairs[0][0].space, pairs[0][0].byte
        with self.pages.transaction():
            before = self.pages.read_page(page, byte, 1)[0]
            wanted, mask = before, 0
            for field, value in pairs:
                mask |= field.mask
                wanted = wanted & ~field.mask | value << field.shift() & field.mask
            # Without a change nothing is written: a module may be busy for 40 ms after a write.
            if wanted == before:
                return
            self.pages.write_page(page, byte, bytes([wanted]))
            deadline = self._clock.now() + CONTROL_S
            while (actual := self.pages.read_page(page, byte, 1)[0]) & mask != wanted & mask:
                if self._clock.now() >= deadline:
                    names = ", ".join(dict.fromkeys(field.name for field, _ in pairs))
                    raise self.error(
                        VerifyError,
                        f"register {names} (byte {byte}) did not change",
                        wrote=f"{wanted & mask:02X}h",
                        read=f"{actual & mask:02X}h",
                        hint="The module ignores this register, although it announces the function.",
                    )
                self._clock.sleep(_POLL_S)

    def write_lanes(self, name: str, lanes: Iterable[int], value: int) -> None:
        """Set a field of some lanes to one value. Raises the errors of :meth:`write`."""
        self.write((find(name, lane), value) for lane in lanes)

    def _check_kind(self, lower: bytes, page: bytes) -> None:
        # An open bus reads FFh; no module has only FFh.
        if set(lower[: FLAG_BYTES.start] + page) == {0xFF}:
            raise no_answer(0xFF, self.device, self.address)
        identifier = lower[0]
        if identifier not in SFF8636_IDENTIFIERS:
            name = sff8024.describe("identifier", identifier)
            raise self.error(
                IdentityError,
                f"expected a QSFP module that follows SFF-8636; found identifier 0x{identifier:02X}, {name}",
                hint=_kind_hint(identifier),
            )

    def _check_checksums(self, page: bytes) -> None:
        wrong = [name for name, item in CHECKSUMS.items() if not checksum_matches(item, page, HALF_BYTES)]
        self.warnings = {}
        if not wrong:
            return
        # The bus has no error check, so only two equal readings prove that the memory itself is wrong.
        if self.pages.read_page(IDENTITY_PAGE, HALF_BYTES, HALF_BYTES) != page:
            raise self.error(
                FrameError,
                f"wrong checksum {' and '.join(wrong)}, and a second reading differs",
                hint="Check the bus: pull-ups, speed, connectors.",
            )
        refused = [name for name in wrong if name not in self._accepted]
        if refused:
            raise self.error(
                DeviceError,
                f"wrong checksum {' and '.join(refused)} in the module's memory",
                hint="The module is damaged or wrongly programmed. To use it anyway, set accept_wrong_checksums.",
            )
        self.warnings = {name: f"{name} is wrong: {_COVERED[name]} may be wrong" for name in wrong}


def _kind_hint(identifier: int) -> str:
    if identifier in CMIS_IDENTIFIERS:
        return "CMIS module: use kind cmis."
    if identifier in SFF8472_IDENTIFIERS:
        return "SFP module: use kind sfp-8472."
    return "This driver reads only QSFP (0Ch), QSFP+ (0Dh) and QSFP28 (11h)."


class QsfpFlags:
    """Reads the latched flags of a module and stores them until the user clears them.

    Args:
        memory: Memory of the module.
        clock: Clock for the times of the flags.
        has: Function that returns whether the module has the fields with a ``QsfpField.support``.
    """

    def __init__(self, memory: QsfpMemory, clock: Clock, has: Callable[[str], bool]) -> None:
        self._memory = memory
        self._clock = clock
        self._fields = tuple(field for field in FLAGS if has(field.support))
        self._flags: dict[FieldKey, StickyFlag] = {}

    def read(self) -> frozenset[FieldKey]:
        """Read all flags once, which clears them in the module; return name and lane of those that were set."""
        pages = self._memory.pages
        with pages.transaction():
            data = pages.read_page(None, FLAG_BYTES.start, len(FLAG_BYTES))
            asserted = frozenset(
                (field.name.removesuffix("_flag"), field.lane)
                for field in self._fields
                if data[field.byte - FLAG_BYTES.start] & field.mask
            )
            now_s = self._clock.now()
            for key in asserted:
                before = self._flags.get(key)
                first_s, count = (now_s, 0) if before is None else (before.first_seen_s, before.count)
                self._flags[key] = StickyFlag(*key, first_s, now_s, count + 1)
        return asserted

    def all(self) -> tuple[StickyFlag, ...]:
        """Return all stored flags in the order of their first reading."""
        return tuple(sorted(self._flags.values(), key=lambda flag: (flag.first_seen_s, flag.name, flag.lane or 0)))

    def clear(self) -> None:
        """Remove the stored flags."""
        self._flags.clear()
