"""Session with a Novoptel instrument.

A reply does not name its register, so every exchange also reads a register with known content (a landmark) to detect
lost bytes.
"""

from __future__ import annotations

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConfigError, LinkTimeout
from lumion_hw.links.base import Link
from lumion_hw.sessions.codecs.novoptel import LARGEST_ADDRESS, LARGEST_WORD, WireForm
from lumion_hw.sessions.conversation import Conversation, format_bytes

DEFAULT_TIMEOUT_S = 0.5
_PROBES = 3


class NovoptelSession(Conversation):
    """Session with one Novoptel instrument. Thread-safe; share one session per address.

    Args:
        link: Link to the instrument.
        clock: Clock of the link.
        form: Format of register accesses on this link.
        landmarks: Addresses of at least three registers with constant content, such as the type name.
        timeout_s: Time limit for one exchange.
    """

    harmless = b""

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        form: WireForm,
        landmarks: tuple[int, ...],
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s)
        self._form = form
        self._landmarks = landmarks
        self._landmark_values: tuple[int, ...] = ()

    def open(self, timeout_s: float = 5.0) -> tuple[int, ...]:
        """Open the link and return the content of the constant registers (``landmarks``).

        Raises ``ConnectError`` if the link cannot be opened, and the errors of :meth:`exchange`.
        """
        with self.transaction():
            self.open_link(timeout_s)
            self._landmark_values = ()
            with self._with_device_name():
                if self._form.wake:
                    self.send(self._form.wake, Deadline(self._clock.now() + timeout_s))
                    # There may be a reply, if it completes a command of an earlier host.
                    self._link.drain(self._quiet_s, Deadline(self._clock.now() + timeout_s))
            self._landmark_values = self.read(*self._landmarks)
            return self._landmark_values

    def read(self, *addresses: int) -> tuple[int, ...]:
        """Return the content of registers, read one after the other. Raises the errors of :meth:`exchange`."""
        for address in addresses:
            _check(address, 0)
        label = f"registers {', '.join(map(str, addresses))}" if len(addresses) > 1 else f"register {addresses[0]}"
        with self.exchange(label) as deadline:
            words = tuple(self._read_register(address, label, deadline) for address in addresses)
            # A lost or inserted byte shifts all later words, so that the known register appears changed.
            if (
                self._landmark_values
                and self._read_register(self._landmarks[0], label, deadline) != self._landmark_values[0]
            ):
                raise self._frame_error(
                    label,
                    "not from these registers: a constant register, read last, has a different value",
                )
            # A byte after the last word means that one was inserted earlier.
            extra = self.receive_available(1, Deadline(self._clock.now()))
            if extra:
                raise self._frame_error(label, f"followed by {format_bytes(extra + self._buffer)}")
            return words

    def write(self, address: int, word: int) -> None:
        """Write a word to a register. The instrument does not confirm it, so read it back. Raises ``LinkLost``."""
        _check(address, word)
        with self.exchange(f"register {address} = {word}") as deadline:
            self.send(self._form.write_request(address, word), deadline)

    def probe(self, deadline: Deadline) -> bool:
        """Check that the constant registers have not changed."""
        if not self._landmark_values:
            return False
        try:
            return all(
                self._read_register(address, "landmark", deadline) == word
                for address, word in zip(self._landmarks[:_PROBES], self._landmark_values, strict=False)
            )
        except LinkTimeout:
            return False

    def _read_register(self, address: int, label: str, deadline: Deadline) -> int:
        self.send(self._form.read_request(address), deadline)
        reply = self.receive_exactly(self._form.reply_bytes, label, deadline)
        word = self._form.word(reply)
        if word is None:
            raise self._frame_error(label, f"not a word: {format_bytes(reply)}")
        return word


def _check(address: int, word: int) -> None:
    if not (0 <= address <= LARGEST_ADDRESS and 0 <= word <= LARGEST_WORD):
        raise ConfigError(f"register {address} = {word}: the address must fit in 12 bits and the word in 16 bits")
