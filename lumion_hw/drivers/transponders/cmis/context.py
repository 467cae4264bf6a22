"""What all parts of the driver of one open module share: its memory, flags, clock, advertised limits and messages."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from lumion_hw.clock import Clock
from lumion_hw.drivers.transponders.cmis.advertised import Advertised
from lumion_hw.drivers.transponders.cmis.memory import CmisMemory, FlagStore
from lumion_hw.errors import (
    DeviceError,
    DeviceTimeoutError,
    IdentityError,
    LimitError,
    LumionError,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import TransponderIdentity
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError, ShortReadError
from lumion_hw.standards.cmis import FIELDS, codes
from lumion_hw.standards.registers import text


@dataclass(frozen=True)
class Quirks:
    """Deviations of a module from the standard, or choices that the standard leaves open.

    Attributes:
        inverted_deinit: 10h:128 means "power the data path up", as in CMIS 3.
        power_request: What asks for low power: ``software`` sets LowPwrRequestSW; ``pin`` only allows the pin to ask,
            for boards that hold the pin of a module that ignores the bit.
        tunes_while_active: The laser may be retuned while the data path is active.
        decommission: Lanes of another data path are first put out of use with application 0.
        tx_disable_all: Tx disable is written for all eight media lanes, whichever are used.
        settle_after_apply_s: How long an old result may stand in ConfigStatus after an apply.
        freeze: Statistics are frozen while they are read; ``False`` for a module whose freeze does not work.
        time_factor: Factor on all advertised durations, for a module that takes longer than it says.
    """

    inverted_deinit: bool = False
    power_request: Literal["software", "pin"] = "software"
    tunes_while_active: bool = False
    decommission: bool = True
    tx_disable_all: bool = False
    settle_after_apply_s: float = 0.5
    freeze: bool = True
    time_factor: float = 1.0


@dataclass(frozen=True)
class ModuleModel:
    """One row of the table: whom it is about, what is different, and how that is known."""

    vendor: str = ".*"
    part_number: str = ".*"
    from_revision: tuple[int, int] = (0, 0)
    below_revision: tuple[int, int] = (16, 0)
    changes: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    def fits(self, identity: TransponderIdentity, revision: tuple[int, int]) -> bool:
        """Return whether a module is one of these."""
        by_name = re.fullmatch(self.vendor, identity.vendor) and re.fullmatch(self.part_number, identity.part_number)
        return bool(by_name) and self.from_revision <= revision < self.below_revision


MODULE_MODELS: tuple[ModuleModel, ...] = (
    ModuleModel(
        from_revision=(3, 0),
        below_revision=(4, 0),
        changes={"inverted_deinit": True},
        reason="10h:128 is DataPathPwrUp in CMIS 3",
    ),
)
"""Modules known to differ. Rows are applied in order; what the user says is applied last."""


def quirks_of(identity: TransponderIdentity, revision: tuple[int, int], told: dict[str, Any] | None = None) -> Quirks:
    """Return what is known of a module, and what the user says of it."""
    changes: dict[str, Any] = {}
    for row in MODULE_MODELS:
        if row.fits(identity, revision):
            changes |= row.changes
    return dataclasses.replace(Quirks(), **changes | (told or {}))


MARGIN = 1.5
"""Deadlines are this much longer than the module advertises (docs/transponders.md, "Times")."""
UNBOUNDED_S = 3000.0
"""Bound of a stage for which a module states none: duration code Dh means 3000 s or more."""
_LEAST_S = 1.0
_ErrorT = TypeVar("_ErrorT", bound=LumionError)
_T = TypeVar("_T")


class ModuleContext:
    """One open module, shared by the parts of its driver.

    Args:
        memory: Its fields.
        clock: Measures deadlines.
        advertised: What its static pages say.
        identity: Who it is.
        quirks: What it does differently.

    Attributes:
        warnings: What went wrong without stopping anything, in words.
    """

    def __init__(
        self, memory: CmisMemory, clock: Clock, advertised: Advertised, identity: TransponderIdentity, quirks: Quirks
    ) -> None:
        self.memory = memory
        self.clock = clock
        self.advertised = advertised
        self.identity = identity
        self.quirks = quirks
        self.flags = FlagStore(memory, clock)
        self.flags.unsupported = frozenset(name for name in FIELDS if advertised.supported(name) is False)
        self.warnings: list[str] = []

    def error(self, kind: type[_ErrorT], message: str, hint: str) -> _ErrorT:
        """Return an error about this module."""
        return self.memory.error(kind, message, hint=hint)

    def error_limit(self, message: str, asked: float, limit: float, unit: str) -> LimitError:
        """Return the error for a value outside a limit of this module."""
        return self.memory.error(LimitError, message, requested=asked, limit=limit, unit=unit)

    def error_verify(self, message: str, wrote: object, read: object, hint: str) -> VerifyError:
        """Return the error for what the module does not have as it was told."""
        return self.memory.error(VerifyError, message, wrote=wrote, read=read, hint=hint)

    def needs(self, supported: object, label: str) -> None:
        """Raise ``NotSupportedError`` unless the module can do it."""
        if not supported:
            raise self.error(NotSupportedError, f"{label} is not supported", "The module does not advertise it.")

    def readable(self, label: str, read: Callable[[], _T], otherwise: _T) -> _T:
        """Return what optional pages say; ``otherwise``, with a warning, where only these pages cannot be read.

        Raises:
            LinkError: The rest of the module cannot be read either.
        """
        try:
            return read()
        except (NotRespondingError, ModuleAbsentError, ShortReadError) as error:
            self.memory.pages.read_page(None, 0, 1)
            self.warnings.append(f"{label} cannot be read, and what it says is not known: {error.message}")
            return otherwise

    def guard(self) -> None:
        """Make sure that the module is still the one that was opened. Raises ``IdentityError``.

        Every operation that writes begins with this: the module may have been replaced by another one.
        """
        pages = self.memory.pages
        with pages.transaction():
            part, serial = FIELDS["part_number"].span(), FIELDS["serial_number"].span()
            # Part and serial number in one transfer: a module exchanged between two reads would look like a mixture.
            data = pages.read_page(0x00, part.start, serial.stop - part.start)
        found = text(data[: len(part)]), text(data[serial.start - part.start :])
        if found != (self.identity.part_number, self.identity.serial):
            raise self.error(
                IdentityError,
                f"this is {found[0]} with serial {found[1]}, not {self.identity.part_number} with serial "
                f"{self.identity.serial} as when it was opened; nothing was written",
                "Close it and open the module that is plugged in now.",
            )

    def longest_s(self, stage: str) -> float:
        """Return how long a stage may take."""
        bound_s = self.advertised.durations_s[stage]
        # At least a second: modules that advertise 1 ms stages are still polled over a slow bus.
        return max(MARGIN * (UNBOUNDED_S if bound_s is None else bound_s) * self.quirks.time_factor, _LEAST_S)

    def state(self) -> int:
        """Return the module state. Raises ``DeviceError`` with the cause if it is a fault."""
        state = self.memory.number("module_state")
        if state == codes.ModuleState.FAULT:
            cause = self.memory.number("fault_cause")
            fault = self.error(
                DeviceError,
                f"the module is in its fault state: {codes.describe('fault_cause', cause)}",
                "Only a reset leaves this state; reset it or replace it.",
            )
            fault.code = cause
            raise fault
        return state

    def need_ready(self) -> None:
        """Raise ``DeviceError`` unless the module is powered up."""
        if self.advertised.flat:
            raise self.error(
                NotSupportedError, "a flat memory has no lane control", "It is a cable or a simple module."
            )
        state = self.state()
        if state != codes.ModuleState.READY:
            raise self.error(
                DeviceError,
                f"the module is not ready but in state {codes.describe('module_state', state)}",
                "Call power_up() first.",
            )

    def wait(self, done: Callable[[], bool], timeout_s: float, stage: Callable[[], str]) -> None:
        """Ask again and again until it is done.

        Args:
            done: Looks; may raise what it finds.
            timeout_s: How long at most.
            stage: Says what it is waiting for, with lane and last code.

        Raises:
            DeviceTimeoutError: It was not done in time.
        """
        # From 10 to 250 ms: stages take from milliseconds to minutes, and the bus is there for others, too. What has
        # taken long already is noticed a fiftieth of that later.
        period_s = min(max(timeout_s / 200.0, 0.01), 0.25)
        began_s = self.clock.now()
        end = began_s + timeout_s
        while not done():
            if self.clock.now() >= end:
                raise self.error(
                    DeviceTimeoutError,
                    f"{stage()} for {timeout_s:.3g} s",
                    "It takes longer than the module advertises; wait_for_lock() and flags() may tell why.",
                )
            now_s = self.clock.now()
            self.clock.sleep(min(max(period_s, 0.02 * (now_s - began_s)), max(end - now_s, 0.0)))
