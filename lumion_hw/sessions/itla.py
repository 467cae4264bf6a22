"""Session with an ITLA laser module. Damaged requests and replies are detected and repeated."""

from __future__ import annotations

import contextlib

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import BadValueError, BusyError, DeviceError, FrameError, NotSupportedError
from lumion_hw.links.base import Link
from lumion_hw.sessions.codecs.itla import (
    FRAME_BYTES,
    FrameProblem,
    ItlaRegister,
    ItlaReplyStatus,
    Reply,
    decode_reply,
    read_request,
    repeat_request,
    write_request,
)
from lumion_hw.sessions.conversation import Conversation, format_bytes

DEFAULT_TIMEOUT_S = 0.5
"""Default time limit for a reply, in s."""
# The checksum has only four bits, so every repeat on a bad line
# adds a chance of 1 in 16 that a damaged frame passes.
_ATTEMPTS = 3
# Identity strings have a few dozen bytes; a longer one is a damaged reply that passed the four-bit checksum.
_LONGEST_STRING_BYTES = 4096
_ERRORS: dict[int, tuple[type[DeviceError], str]] = {
    FrameProblem.NOT_IMPLEMENTED: (NotSupportedError, "the module does not have this register (RNI)"),
    FrameProblem.NOT_WRITABLE: (NotSupportedError, "the register is read-only (RNW)"),
    FrameProblem.VALUE_RANGE: (BadValueError, "the value is outside the module's range (RVE)"),
    FrameProblem.PENDING: (BusyError, "an operation is pending (CIP)"),
    FrameProblem.INITIALISING: (BusyError, "the module is starting (CII)"),
    FrameProblem.OUTPUT_ENABLED: (DeviceError, "the output is enabled (CIE)"),
    FrameProblem.CONFIGURATION: (DeviceError, "the configuration is not valid (IVC)"),
}


class ItlaSession(Conversation):
    """Session with one ITLA module. Thread-safe; share one session per line.

    Args:
        link: Serial link, 8N1; 9600 baud by default.
        clock: Clock of the link.
        timeout_s: Time limit for a reply.
    """

    # Four rounds cover every shift of a frame of four bytes; two more for damaged transfers.
    resync_rounds = 6
    harmless = b""

    def __init__(self, link: Link, clock: Clock, *, device: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s, quiet_s=0.02)
        self._is_first_probe = True

    def read(self, register: int) -> int:
        """Return the 16 bits of a module register.

        Raises the errors of :meth:`exchange`, ``NotSupportedError`` if the module does not have the register, and
        ``DeviceError`` if the module refuses for another reason.
        """
        with self.transaction():
            reply = self._exchange(f"read 0x{register:02X}", read_request(register), register)
            return self._accepted(f"read 0x{register:02X}", reply).data

    def write(self, register: int, data: int) -> bool:
        """Write 16 bits to a register; return whether the write is still pending. Raises the errors of :meth:`read`."""
        label = f"write 0x{register:02X} = {data}"
        with self.transaction():
            reply = self._accepted(label, self._exchange(label, write_request(register, data), register))
            return reply.status is ItlaReplyStatus.PENDING

    def read_string(self, register: int) -> bytes:
        """Return the bytes of a text register. Raises the errors of :meth:`read`."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(FrameError), self.transaction():
                return self._string(register)
        with self.transaction():
            return self._string(register)

    def _string(self, register: int) -> bytes:
        label = f"read string 0x{register:02X}"
        reply = self._accepted(label, self._exchange(label, read_request(register), register))
        if reply.status is not ItlaReplyStatus.AEA or reply.data > _LONGEST_STRING_BYTES:
            raise self._frame_error(label, f"not a string: {reply}")
        data = b"".join(self.read(ItlaRegister.AEA_EAR).to_bytes(2, "big") for _ in range((reply.data + 1) // 2))
        return data[: reply.data]

    def probe(self, deadline: Deadline) -> bool:
        """Check that the module replies; a zero byte before each further attempt aligns host and module again."""
        if not self._is_first_probe:
            self.send(b"\0", deadline)
            # The zero byte may have completed a request.
            self.receive_available(FRAME_BYTES, Deadline(self._clock.now() + self._quiet_s))
        self._is_first_probe = False
        for register in (ItlaRegister.NOP, ItlaRegister.OPSH, ItlaRegister.NOP):
            self.send(read_request(register), deadline)
            reply = decode_reply(
                self.receive_available(FRAME_BYTES, Deadline(min(deadline, self._clock.now() + self._timeout_s)))
            )
            if reply is None or reply.damaged or reply.register != register:
                return False
        self._is_first_probe = True
        return True

    def _exchange(self, label: str, request: bytes, register: int) -> Reply:
        is_write = request != read_request(register)
        # Each read of AEA-EAR advances the module's pointer, so a repeat would skip two bytes of the text.
        attempts = 1 if register == ItlaRegister.AEA_EAR else _ATTEMPTS
        with self.exchange(label) as deadline:
            frame, message = b"", request
            for _ in range(attempts):
                self.send(message, deadline)
                frame = self.receive_exactly(FRAME_BYTES, label, deadline)
                reply = decode_reply(frame)
                is_first = message == request
                if reply is not None and not reply.damaged:
                    if reply.register == register and (is_first or frame[2:] == request[2:]):
                        return reply
                    # A valid reply to a different request: replies and requests are
                    # out of sync, and repeating would not help.
                    if is_first:
                        break
                # LstRsp requests the reply again without repeating the
                # write. A read is simply repeated.
                message = repeat_request() if reply is None and is_write and is_first else request
            raise self._frame_error(label, f"not a reply to this request: {format_bytes(frame)}")

    def _accepted(self, label: str, reply: Reply) -> Reply:
        if reply.status is not ItlaReplyStatus.EXECUTION_ERROR:
            return reply
        # An execution error does not name its cause; bits 3-0 of NOP hold the cause for the last command
        # (OIF-ITLA-MSA-01.3).
        data = self._exchange("read 0x00", read_request(ItlaRegister.NOP), ItlaRegister.NOP).data
        code = data & 0x0F
        kind, reason = _ERRORS.get(code, (DeviceError, f"error {code}"))
        raise self.error(kind, f"{label} failed: {reason}", code=code, command=label, hint="Nothing was changed.")
