"""State and checks shared by all parts of the driver of an open module."""

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
    """Deviations of a module from the standard, or choices left open by the standard.

    Attributes:
        inverted_deinit: Whether the bits of 10h:128 mean "power up the data path", as in CMIS 3.
        power_request: How low power is requested: by the bit LowPwrRequestSW (``software``) or the pin LPMode
            (``pin``).
        tunes_while_active: Whether the laser can be tuned while the data path is active.
        decommission: Whether lanes must be set to application 0 before a new application is selected.
        tx_disable_all: Whether Tx disable must be written for all eight media lanes.
        settle_after_apply_s: Time in s for which ConfigStatus may show an old result after a configuration.
        freeze: Whether the module can freeze statistics while they are read.
        time_factor: Factor for all advertised durations, for modules that exceed them.
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
    """Identity patterns of modules, with their deviations from CMIS and the reason."""

    vendor: str = ".*"
    part_number: str = ".*"
    from_revision: tuple[int, int] = (0, 0)
    below_revision: tuple[int, int] = (16, 0)
    changes: dict[str, Any] = field(default_factory=dict)
    reason: str = ""

    def matches(self, identity: TransponderIdentity, revision: tuple[int, int]) -> bool:
        """Return whether a module matches the patterns."""
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
"""Modules with known deviations from the standard. All matching entries apply, in this order."""


def quirks_of(
    identity: TransponderIdentity, revision: tuple[int, int], overrides: dict[str, Any] | None = None
) -> Quirks:
    """Return the known quirks of a module with the user's overrides."""
    changes: dict[str, Any] = {}
    for row in MODULE_MODELS:
        if row.matches(identity, revision):
            changes |= row.changes
    return dataclasses.replace(Quirks(), **changes | (overrides or {}))


MARGIN = 1.5
"""Factor from advertised durations to time-outs (docs/transponders.md, "Times")."""
UNBOUNDED_S = 3000.0
"""Duration in s assumed for the code Dh, which means 3000 s or more."""
_MIN_TIMEOUT_S = 1.0
_ErrorT = TypeVar("_ErrorT", bound=LumionError)
_T = TypeVar("_T")


class ModuleContext:
    """An open CMIS module, shared by all parts of its driver.

    Args:
        memory: Fields of the module.
        clock: Clock for time-outs.
        advertised: Content of the static pages.
        identity: Identity of the module.
        quirks: Deviations of the module.

    Attributes:
        warnings: Problems that did not cause an error.
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
        """Return an error that names this module."""
        return self.memory.error(kind, message, hint=hint)

    def error_limit(self, message: str, requested: float, limit: float, unit: str) -> LimitError:
        """Return the error for a value outside a limit of this module."""
        return self.memory.error(LimitError, message, requested=requested, limit=limit, unit=unit)

    def error_verify(self, message: str, wrote: object, read: object, hint: str) -> VerifyError:
        """Return the error for a value that differs when read back."""
        return self.memory.error(VerifyError, message, wrote=wrote, read=read, hint=hint)

    def needs(self, supported: object, label: str) -> None:
        """Raise ``NotSupportedError`` unless ``supported`` is true; ``label`` names the function in the message."""
        if not supported:
            raise self.error(NotSupportedError, f"{label} is not supported", "The module does not advertise it.")

    def readable(self, label: str, read: Callable[[], _T], default: _T) -> _T:
        """Return the result of ``read``, or ``default`` with a warning if only these pages cannot be read.

        Raises ``LinkError`` if the other pages cannot be read either.
        """
        try:
            return read()
        except (NotRespondingError, ModuleAbsentError, ShortReadError) as error:
            self.memory.pages.read_page(None, 0, 1)
            self.warnings.append(f"{label} cannot be read, and its content is unknown: {error.message}")
            return default

    def guard(self) -> None:
        """Raise ``IdentityError`` if the module was replaced after it was opened."""
        pages = self.memory.pages
        with pages.transaction():
            part, serial = FIELDS["part_number"].span(), FIELDS["serial_number"].span()
            # Both in one transfer, so that they belong to the same module.
            data = pages.read_page(0x00, part.start, serial.stop - part.start)
        actual = text(data[: len(part)]), text(data[serial.start - part.start :])
        if actual != (self.identity.part_number, self.identity.serial):
            raise self.error(
                IdentityError,
                f"expected {self.identity.part_number} with serial {self.identity.serial}, found {actual[0]} with "
                f"serial {actual[1]}: the module was replaced; nothing was written",
                "Close the driver and open it again.",
            )

    def longest_s(self, stage: str) -> float:
        """Return the time-out for a state change: the advertised duration with a margin."""
        bound_s = self.advertised.durations_s[stage]
        # At least one second, because the module is polled over a slow bus.
        return max(MARGIN * (UNBOUNDED_S if bound_s is None else bound_s) * self.quirks.time_factor, _MIN_TIMEOUT_S)

    def state(self) -> int:
        """Return the module state. Raises ``DeviceError`` in the fault state."""
        state = self.memory.number("module_state")
        if state == codes.ModuleState.FAULT:
            cause = self.memory.number("fault_cause")
            fault = self.error(
                DeviceError,
                f"the module is in its fault state: {codes.describe('fault_cause', cause)}",
                "Reset the module, or replace it.",
            )
            fault.code = cause
            raise fault
        return state

    def need_ready(self) -> None:
        """Raise ``DeviceError`` unless the module is powered up."""
        if self.advertised.flat:
            raise self.error(
                NotSupportedError,
                "a module with flat memory has no lane control",
                "The module may be a cable.",
            )
        state = self.state()
        if state != codes.ModuleState.READY:
            raise self.error(
                DeviceError,
                f"the module is not ready; its state is {codes.describe('module_state', state)}",
                "Call power_up() first.",
            )

    def wait(self, is_finished: Callable[[], bool], timeout_s: float, stage: Callable[[], str]) -> None:
        """Poll the module until a condition is met.

        Args:
            is_finished: Condition; may raise an error.
            timeout_s: Maximum time.
            stage: Function that returns the awaited state, for the message.

        Raises:
            DeviceTimeoutError: The condition was not met in time.
        """
        # From 10 to 250 ms, to limit the load of the bus. Later the period is at least 2 % of the time already waited.
        period_s = min(max(timeout_s / 200.0, 0.01), 0.25)
        began_s = self.clock.now()
        end = began_s + timeout_s
        while not is_finished():
            if self.clock.now() >= end:
                raise self.error(
                    DeviceTimeoutError,
                    f"timed out: {stage()} for {timeout_s:.3g} s",
                    "This exceeds the time that the module advertises. See wait_for_lock() and flags() for the reason.",
                )
            now_s = self.clock.now()
            self.clock.sleep(min(max(period_s, 0.02 * (now_s - began_s)), max(end - now_s, 0.0)))
