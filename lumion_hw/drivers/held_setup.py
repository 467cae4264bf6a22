"""Settings on which a reading depends: read together with it, and restored if something changed them.

The front panel, a second session or ``*RST`` can change the unit or wavelength of a meter unnoticed. If a driver finds
such a change, it logs a warning, restores the setting and repeats the reading
(docs/decisions/0025-readings-with-settings.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lumion_hw.errors import FrameError, VerifyError
from lumion_hw.sessions.lines import OneLineSession
from lumion_hw.sessions.scpi import ScpiSession

ValueT = TypeVar("ValueT")

_log = logging.getLogger(__name__)

_LONGEST_MESSAGE = 160
"""Longest message of several queries, in characters (chosen by this project)."""


@dataclass(frozen=True)
class HeldSetting:
    """A setting that must be unchanged at every reading.

    Attributes:
        query: Query for the setting, such as ``SENS1:POW:UNIT?``.
        value: Value set by the driver, in the unit of the reply, or the keyword in capitals.
        name: Name of the setting, for messages.
        restore: Function that sets the value again. Raises ``LumionError``.
        tolerance: Largest accepted difference from ``value``.
    """

    query: str
    value: float | str
    name: str
    restore: Callable[[], object]
    tolerance: float = 0.0

    def is_unchanged(self, reply: str) -> bool:
        """Return whether the reply to ``query`` shows the value that the driver set."""
        if isinstance(self.value, str):
            return reply.strip().strip('"').upper() == self.value
        try:
            return abs(float(reply) - self.value) <= self.tolerance
        except ValueError:
            return False


class HeldSetup:
    """Settings of an instrument that are checked at every reading.

    Args:
        session: Session with the instrument.
        joined: Whether the instrument accepts several queries in one message, separated by semicolons (IEEE 488.2).
    """

    def __init__(self, session: ScpiSession | OneLineSession, *, joined: bool = True) -> None:
        self._session = session
        self._joined = joined
        self._settings: dict[str, HeldSetting] = {}
        self._unread: dict[str, Callable[[], object]] = {}

    def hold(self, setting: HeldSetting) -> None:
        """Check this setting at every reading from now on. It replaces a setting with the same query."""
        self._settings[setting.query] = setting

    def also_restore(self, name: str, restore: Callable[[], object]) -> None:
        """Also restore this setting, which is not checked itself, whenever a checked setting has changed.

        Args:
            name: Name of the setting; a later call with the same name replaces this one.
            restore: Function that sets the value again.
        """
        self._unread[name] = restore

    def query(self, query: str, timeout_s: float | None = None) -> str:
        """Send a query, check the settings, and return the reply to the query.

        Raises:
            VerifyError: A setting changed again after it was restored.
            FrameError: The instrument sent the wrong number of replies.
            LinkError: The reply did not arrive.
        """
        return self._read_until_unchanged(lambda: self._query_first_and_others([query, *self._settings], timeout_s))

    def read_held(self, read: Callable[[], ValueT]) -> ValueT:
        """Return the result of ``read``; repeat ``read`` if a checked setting has changed.

        Raises the errors of :meth:`query`.
        """
        return self._read_until_unchanged(lambda: (read(), self._query_all([*self._settings])))

    def restore_changed(self) -> None:
        """Restore the checked settings that have changed. Raises the errors of :meth:`query`."""
        self.read_held(lambda: None)

    def check_unchanged(self) -> None:
        """Raise ``VerifyError`` if a checked setting has changed."""
        with self._session.transaction():
            for setting, reply in self._changed(self._query_all([*self._settings])):
                raise self._changed_error(setting, reply, "Measure again.")

    @staticmethod
    def merge(setups: Iterable[HeldSetup]) -> HeldSetup:
        """Combine several setups of one session into one. At least one setup is needed."""
        first, *further = setups
        joined = HeldSetup(first._session, joined=first._joined)
        for setup in (first, *further):
            joined._settings |= setup._settings
            joined._unread |= setup._unread
        return joined

    def _read_until_unchanged(self, read: Callable[[], tuple[ValueT, list[str]]]) -> ValueT:
        with self._session.transaction():
            value, replies = read()
            changed = list(self._changed(replies))
            if not changed:
                return value
            for setting, reply in changed:
                _log.warning(
                    "%s: another program or the front panel changed the %s to %s; restored %s",
                    self._session.device,
                    setting.name,
                    reply,
                    setting.value,
                )
            # Restore all, because *RST also changes settings that are not read back.
            for restore in (*(setting.restore for setting in self._settings.values()), *self._unread.values()):
                restore()
            value, replies = read()
            for setting, reply in self._changed(replies):
                raise self._changed_error(setting, reply, "The reading was discarded.")
            return value

    def _changed(self, replies: list[str]) -> Iterator[tuple[HeldSetting, str]]:
        for setting, reply in zip(self._settings.values(), replies, strict=True):
            if not setting.is_unchanged(reply):
                yield setting, reply

    def _query_first_and_others(self, queries: Sequence[str], timeout_s: float | None) -> tuple[str, list[str]]:
        first, *further = self._query_all(queries, timeout_s)
        return first, further

    def _query_all(self, queries: Sequence[str], timeout_s: float | None = None) -> list[str]:
        return [reply for message in self._messages(queries) for reply in self._query(message, timeout_s)]

    def _messages(self, queries: Sequence[str]) -> Iterator[list[str]]:
        longest = _LONGEST_MESSAGE if self._joined else 0
        message: list[str] = []
        for query in queries:
            if message and len(_joined([*message, query])) > longest:
                yield message
                message = []
            message.append(query)
        if message:
            yield message

    def _query(self, queries: Sequence[str], timeout_s: float | None) -> list[str]:
        message = _joined(queries)
        reply = self._session.query(message, timeout_s)
        replies = reply.split(";") if len(queries) > 1 else [reply]
        if len(replies) != len(queries):
            self._session.mark_out_of_sync(f"{message} answered with {reply!r}")
            raise self._session.error(
                FrameError,
                f"{message}: expected {len(queries)} replies, found {reply!r}",
                hint="Check that no other program uses this connection.",
            )
        return replies

    def _changed_error(self, setting: HeldSetting, actual: str, outcome: str) -> VerifyError:
        return self._session.error(
            VerifyError,
            setting.name,
            wrote=setting.value,
            read=actual,
            hint=f"Another program or the front panel changed the setting. {outcome}",
        )


def _joined(queries: Sequence[str]) -> str:
    first, *further = queries
    return first + "".join(f";:{query.removeprefix(':')}" for query in further)
