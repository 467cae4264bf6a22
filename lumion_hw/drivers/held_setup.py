"""Settings that the meaning of a number depends on: read together with it, restored when somebody else changed them.

A power is a power only in its unit. A press on the front panel, a second session or ``*RST`` changes the unit, the
wavelength or a reference without a word to this driver, and the number that comes back looks as good as any other. So
a driver holds what it has set: every number is read together with the settings it depends on. A setting that somebody
else changed is set again, with a warning in the log, and the number is read anew
(docs/decisions/0025-held-settings.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lumion_hw.errors import FrameError, VerifyError
from lumion_hw.sessions.scpi import ScpiSession

ValueT = TypeVar("ValueT")

_log = logging.getLogger(__name__)

_LONGEST_MESSAGE = 160
"""Characters. Input queues are finite, and the guides of Keysight do not state how long theirs are."""


@dataclass(frozen=True)
class HeldSetting:
    """One setting as the driver made it.

    Attributes:
        query: Query for the setting, such as ``SENS1:POW:UNIT?``.
        wanted: The value, in the unit of the reply, or the word in capitals.
        what: The setting, for messages.
        restore: Sets the value again. Raises ``LumionError``.
        tolerance: Largest difference of a number that counts as the same value.
    """

    query: str
    wanted: float | str
    what: str
    restore: Callable[[], object]
    tolerance: float = 0.0

    def is_kept(self, reply: str) -> bool:
        """Return whether a reply to the query is the value that the driver set."""
        if isinstance(self.wanted, str):
            return reply.strip().strip('"').upper() == self.wanted
        try:
            return abs(float(reply) - self.wanted) <= self.tolerance
        except ValueError:
            return False


class HeldSetup:
    """The settings that some numbers of an instrument depend on.

    Args:
        session: The conversation with the instrument.
        joined: The instrument takes several queries in one message, separated by semicolons, and replies to all of them
            in one line (IEEE 488.2). Otherwise every query costs a message.
    """

    def __init__(self, session: ScpiSession, *, joined: bool = True) -> None:
        self._session = session
        self._joined = joined
        self._settings: dict[str, HeldSetting] = {}
        self._unread: dict[str, Callable[[], object]] = {}

    def hold(self, setting: HeldSetting) -> None:
        """Read this setting with every number from now on; it replaces an earlier one with the same query."""
        self._settings[setting.query] = setting

    def set_along(self, name: str, restore: Callable[[], object]) -> None:
        """Restore this, too, once a held setting was changed: ``*RST`` changes it as well, though no number's meaning.

        Args:
            name: The setting; a later call with the same name replaces this one.
            restore: Sets the value again.
        """
        self._unread[name] = restore

    def ask(self, query: str, timeout_s: float | None = None) -> str:
        """Return the reply to a query, read in one message with the settings.

        Raises:
            VerifyError: A setting was changed again after it was restored.
            FrameError: The instrument answered another number of queries.
            LinkError: The reply did not come.
        """
        return self._until_kept(lambda: self._first_and_rest([query, *self._settings], timeout_s))

    def guard(self, read: Callable[[], ValueT]) -> ValueT:
        """Return what ``read`` returns, once the settings were as they are held. Raises as :meth:`ask`."""
        return self._until_kept(lambda: (read(), self._all([*self._settings])))

    def keep(self) -> None:
        """Restore the settings that somebody else changed. Raises as :meth:`ask`."""
        self.guard(lambda: None)

    def check(self) -> None:
        """Raise ``VerifyError`` if somebody else changed a setting, for numbers that cannot be read again."""
        with self._session.transaction():
            for setting, reply in self._changed(self._all([*self._settings])):
                raise self._changed_error(setting, reply, "Measure again.")

    @staticmethod
    def of(setups: Iterable[HeldSetup]) -> HeldSetup:
        """Return the settings of several setups of one session as one; at least one setup has to be given."""
        first, *others = setups
        joined = HeldSetup(first._session, joined=first._joined)
        for each in (first, *others):
            joined._settings |= each._settings
            joined._unread |= each._unread
        return joined

    def _until_kept(self, read: Callable[[], tuple[ValueT, list[str]]]) -> ValueT:
        with self._session.transaction():
            value, replies = read()
            changed = list(self._changed(replies))
            if not changed:
                return value
            for setting, reply in changed:
                _log.warning(
                    "%s: somebody else changed the %s to %s; set to %s again",
                    self._session.device,
                    setting.what,
                    reply,
                    setting.wanted,
                )
            self._restore()
            value, replies = read()
            for setting, reply in self._changed(replies):
                raise self._changed_error(setting, reply, "The reading was discarded.")
            return value

    def _restore(self) -> None:
        # All of them, and not those that differ: *RST changes what is not read, too.
        for restore in (*(setting.restore for setting in self._settings.values()), *self._unread.values()):
            restore()

    def _changed(self, replies: list[str]) -> Iterator[tuple[HeldSetting, str]]:
        for setting, reply in zip(self._settings.values(), replies, strict=True):
            if not setting.is_kept(reply):
                yield setting, reply

    def _first_and_rest(self, queries: Sequence[str], timeout_s: float | None) -> tuple[str, list[str]]:
        first, *rest = self._all(queries, timeout_s)
        return first, rest

    def _all(self, queries: Sequence[str], timeout_s: float | None = None) -> list[str]:
        """Return the replies to queries, as many of them in one message as it may hold."""
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
                hint="Check that nobody else talks to the instrument over this connection.",
            )
        return replies

    def _changed_error(self, setting: HeldSetting, found: str, outcome: str) -> VerifyError:
        return self._session.error(
            VerifyError,
            setting.what,
            wrote=setting.wanted,
            read=found,
            hint=f"Another program or the front panel changes it. {outcome}",
        )


def _joined(queries: Sequence[str]) -> str:
    """Return several queries as one message; each is looked up from the root, whatever the one before it was."""
    first, *others = queries
    return first + "".join(f";:{query.removeprefix(':')}" for query in others)
