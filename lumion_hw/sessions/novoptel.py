"""The session with a Novoptel instrument: registers read in order, with a known word at the end of every exchange.

Two bytes of a reply say nothing about the question they answer. So each exchange ends with a register whose word is
known; had a byte got lost, or one too many come, another word would stand there, and nothing is believed.
"""

from __future__ import annotations

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConfigError, LinkTimeout
from lumion_hw.links.base import Link
from lumion_hw.sessions.codecs.novoptel import LARGEST_ADDRESS, LARGEST_WORD, WireForm
from lumion_hw.sessions.conversation import Conversation, shown

DEFAULT_TIMEOUT_S = 0.5
_PROBES = 3


class NovoptelSession(Conversation):
    """A conversation with one instrument. Thread-safe; share one session per address.

    Args:
        link: The link to the instrument.
        clock: The link's clock.
        device: Device name, for messages.
        form: How accesses look on this link.
        landmarks: Addresses of registers with constant words, such as the name of the type; at least three. What they
            hold is learnt at opening.
        timeout_s: Time for one exchange.
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
        self._known: tuple[int, ...] = ()

    def open(self, timeout_s: float = 5.0) -> tuple[int, ...]:
        """Open the link and return the words of the landmarks.

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: Nothing answers.
            FrameError: What answers speaks otherwise.
        """
        with self.transaction():
            self.open_link(timeout_s)
            self._known = ()
            with self._named():
                if self._form.wake:
                    self.send(self._form.wake, Deadline(self._clock.now() + timeout_s))
                    # It may be answered, as the end of what an earlier host had begun.
                    self._link.drain(self._quiet_s, Deadline(self._clock.now() + timeout_s))
            self._known = self.read(*self._landmarks)
            return self._known

    def read(self, *addresses: int) -> tuple[int, ...]:
        """Return the words of registers, read one after the other in one exchange.

        Raises:
            LinkTimeout: A reply did not come in time; the next exchange resynchronises first.
            FrameError: A reply is no word, or they are not the replies to these requests.
            LinkLost: The link is gone, or could not be resynchronised.
        """
        for address in addresses:
            _check(address, 0)
        what = f"registers {', '.join(map(str, addresses))}" if len(addresses) > 1 else f"register {addresses[0]}"
        with self.exchange(what) as deadline:
            words = tuple(self._ask(address, what, deadline) for address in addresses)
            # One byte too few or too many shifts every word behind it; the known one then holds another value.
            if self._known and self._ask(self._landmarks[0], what, deadline) != self._known[0]:
                raise self._frame_error(what, "not of these registers: the one at the end holds another word")
            # A byte behind the last word is one too many somewhere before it.
            extra = self.receive_available(1, Deadline(self._clock.now()))
            if extra:
                raise self._frame_error(what, f"followed by {shown(extra + self._buffer)}")
            return words

    def write(self, address: int, word: int) -> None:
        """Write a word to a register. There is no reply: read it back. Raises ``LinkLost``."""
        _check(address, word)
        with self.exchange(f"register {address} = {word}") as deadline:
            self.send(self._form.write_request(address, word), deadline)

    def probe(self, deadline: Deadline) -> bool:
        """Read the landmarks and see whether they hold what they always held."""
        if not self._known:
            return False
        try:
            return all(
                self._ask(address, "landmark", deadline) == word
                for address, word in zip(self._landmarks[:_PROBES], self._known, strict=False)
            )
        except LinkTimeout:
            return False

    def _ask(self, address: int, what: str, deadline: Deadline) -> int:
        self.send(self._form.read_request(address), deadline)
        reply = self.receive_exactly(self._form.reply_bytes, what, deadline)
        word = self._form.word(reply)
        if word is None:
            raise self._frame_error(what, f"no word: {shown(reply)}")
        return word


def _check(address: int, word: int) -> None:
    if not (0 <= address <= LARGEST_ADDRESS and 0 <= word <= LARGEST_WORD):
        raise ConfigError(f"register {address} = {word}: expected an address of 12 bits and a word of 16 bits")
