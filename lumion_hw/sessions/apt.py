"""Session with a Thorlabs APT device."""

from __future__ import annotations

from collections.abc import Callable

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import LinkTimeout
from lumion_hw.links.base import Link, ModemLink
from lumion_hw.sessions.codecs.apt import AptDecoder, AptFrame, DecodedAptMessage, command
from lumion_hw.sessions.conversation import Conversation

DEFAULT_TIMEOUT_S = 0.5
"""Default time limit for a reply, in s."""
WRITE_GAP_S = 3e-3
"""Minimum time between two writes, in s; faster writes are lost (Thorlabs MPC, docs/instruments.md)."""
# RTS must be toggled at opening; no document states the duration, so this value is a guess.
_RTS_PULSE_S = 0.05


class AptSession(Conversation):
    """Session with one APT device. Thread-safe; share one session per line.

    Args:
        link: Link with 115 200 baud, 8N1.
        clock: Clock of the link.
        on_frame: Called with every message, requested or not, while the session is locked.
        timeout_s: Default time limit for a reply.
    """

    # Six rounds cover every shift within a header of six bytes; two more for damaged transfers.
    resync_rounds = 8
    harmless = b""

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        on_frame: Callable[[AptFrame], None] = lambda frame: None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s)
        self._on_frame = on_frame
        self._decoder = AptDecoder()
        self._written_s = clock.now() - WRITE_GAP_S
        self._is_first_probe = True

    def open(self, timeout_s: float = 5.0) -> None:
        """Open the link, toggle RTS if available, and check that the device replies.

        Raises ``ConnectError`` if the link cannot be opened, and ``LinkTimeout`` if the device did not reply.
        """
        with self.transaction():
            self.open_link(timeout_s)
            with self._with_device_name():
                if isinstance(self._link, ModemLink):
                    self._link.set_rts(False)
                    self._clock.sleep(_RTS_PULSE_S)
                    self._link.set_rts(True)
                self._decoder = AptDecoder()
                for _ in range(self.resync_rounds):
                    if self.probe(Deadline(self._clock.now() + self._timeout_s)):
                        return
            self._decoder.reset()
            self._count(foreign_bytes=self._decoder.foreign_bytes)
            raise self.error(
                LinkTimeout,
                f"no reply to {self.resync_rounds} requests for the paddle parameters",
                hint="Check that the controller is on, and check its address in the bench file.",
            )

    def send_message(self, message: bytes, label: str) -> None:
        """Send a message that has no reply. Raises ``LinkLost``."""
        with self.exchange(label) as deadline:
            self._write_paced(message, deadline)

    def request(self, message: bytes, label: str, reply_id: DecodedAptMessage, channel: int | None = None) -> AptFrame:
        """Send a request and return its reply. Raises the errors of :meth:`exchange`.

        Args:
            message: Request to send.
            label: Description of the request, for messages.
            reply_id: Id of the reply.
            channel: Channel id in the reply; any if omitted.
        """
        with self.exchange(label) as deadline:
            started, n_foreign = self._clock.now(), self._decoder.foreign_bytes
            self._write_paced(message, deadline)
            reply = self._wait_for(reply_id, channel, deadline)
            n_foreign = self._decoder.foreign_bytes - n_foreign
            if n_foreign:
                self._count(foreign_bytes=n_foreign)
                raise self._frame_error(label, f"mixed with {n_foreign} bytes that are not a message")
            if reply is None:
                raise self._incomplete(label, started)
            return reply

    def probe(self, deadline: Deadline) -> bool:
        """Check that the device replies; a zero byte before each further attempt aligns host and device again."""
        if not self._is_first_probe:
            self._write_paced(b"\0", deadline)
        self._is_first_probe = False
        self._write_paced(command(DecodedAptMessage.REQUEST_PARAMETERS), deadline)
        self._is_first_probe = self._wait_for(DecodedAptMessage.PARAMETERS, None, deadline) is not None
        return self._is_first_probe

    def _write_paced(self, message: bytes, deadline: Deadline) -> None:
        wait_s = self._written_s + WRITE_GAP_S - self._clock.now()
        if wait_s > 0.0:
            self._clock.sleep(wait_s)
        self.send(message, deadline)
        self._written_s = self._clock.now()

    def _wait_for(self, reply_id: DecodedAptMessage, channel: int | None, deadline: Deadline) -> AptFrame | None:
        while data := self._link.read(deadline):
            messages = [
                frame
                for frame in self._decode_bytes(data)
                if frame.message == reply_id and channel in (None, frame.channel)
            ]
            if messages:
                # The device also sends states on its own, so the latest of several is the current one.
                return messages[-1]
            if self._clock.now() >= deadline:
                break
        return None

    def _decode_bytes(self, data: bytes) -> list[AptFrame]:
        frames = self._decoder.feed(data)
        for frame in frames:
            self._on_frame(frame)
        return frames

    def _process_unrequested(self, label: str) -> None:
        n_foreign = self._decoder.foreign_bytes
        self._decode_bytes(self._link.read(Deadline(self._clock.now())))
        n_foreign = self._decoder.foreign_bytes - n_foreign
        if n_foreign:
            self._count(foreign_bytes=n_foreign)
            self.mark_out_of_sync(f"{n_foreign} bytes that are not a message, before {label}")

    def _discard_input(self, quiet_s: float) -> int:
        n_foreign, end = self._decoder.foreign_bytes, self._clock.now() + quiet_s + self._patience_s
        while (now_s := self._clock.now()) < end and (data := self._link.read(Deadline(min(now_s + quiet_s, end)))):
            self._decode_bytes(data)
        self._decoder.reset()
        n_foreign = self._decoder.foreign_bytes - n_foreign
        self._count(foreign_bytes=n_foreign)
        return n_foreign
