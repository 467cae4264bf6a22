"""The ITLA session: one request, one reply of four bytes; damaged frames are noticed and asked for again."""

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
from lumion_hw.sessions.conversation import Conversation, shown

DEFAULT_TIMEOUT_S = 0.5
"""Time for a reply: eight bytes at 9600 baud take 8 ms, the rest is the module's."""
# The checksum has four bits, so that every repeat on a bad line
# is one more chance in sixteen that a damaged frame passes it.
_ATTEMPTS = 3
# Identity strings have a few dozen bytes; a length beyond this is a damaged reply that passed its four-bit checksum.
_LONGEST_STRING_BYTES = 4096
_ERRORS: dict[int, tuple[type[DeviceError], str]] = {
    FrameProblem.NOT_IMPLEMENTED: (NotSupportedError, "this module does not have this register (RNI)"),
    FrameProblem.NOT_WRITABLE: (NotSupportedError, "this register cannot be written (RNW)"),
    FrameProblem.VALUE_RANGE: (BadValueError, "the value is outside the module's range (RVE)"),
    FrameProblem.PENDING: (BusyError, "an operation is pending (CIP)"),
    FrameProblem.INITIALISING: (BusyError, "the module is starting (CII)"),
    FrameProblem.OUTPUT_ENABLED: (DeviceError, "the output is enabled (CIE)"),
    FrameProblem.CONFIGURATION: (DeviceError, "the configuration is not valid (IVC)"),
}


class ItlaSession(Conversation):
    """A conversation with one module. Thread-safe; share one session per line.

    Args:
        link: The serial link, 8N1, 9600 baud unless the module was told otherwise.
        clock: The link's clock.
        device: Device name, for messages.
        timeout_s: Time for a reply.
    """

    # Four rounds cover every shift of a frame of four bytes; two more for damage on the way.
    resync_rounds = 6
    harmless = b""

    def __init__(self, link: Link, clock: Clock, *, device: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(link, clock, device=device, timeout_s=timeout_s, quiet_s=0.02)
        self._is_first_probe = True

    def read(self, register: int) -> int:
        """Return the 16 bits of a register.

        Raises:
            NotSupportedError: The module does not have it.
            DeviceError: The module refuses.
            LinkTimeout: No reply in time.
            FrameError: What came is no reply to this request.
        """
        with self.transaction():
            reply = self._ask(f"read 0x{register:02X}", read_request(register), register)
            return self._accepted(f"read 0x{register:02X}", reply).data

    def write(self, register: int, data: int) -> bool:
        """Write 16 bits to a register; tell whether the operation it starts is pending. Raises as :meth:`read`."""
        what = f"write 0x{register:02X} = {data}"
        with self.transaction():
            reply = self._accepted(what, self._ask(what, write_request(register, data), register))
            return reply.status is ItlaReplyStatus.PENDING

    def read_string(self, register: int) -> bytes:
        """Return the bytes of a string register (AEA), read through the register AEA-EAR. Raises as :meth:`read`."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(FrameError), self.transaction():
                return self._string(register)
        with self.transaction():
            return self._string(register)

    def _string(self, register: int) -> bytes:
        """Read a string from its beginning: each read of AEA-EAR goes on by a word, so none can be repeated."""
        what = f"read string 0x{register:02X}"
        reply = self._accepted(what, self._ask(what, read_request(register), register))
        if reply.status is not ItlaReplyStatus.AEA or reply.data > _LONGEST_STRING_BYTES:
            raise self._frame_error(what, f"no string: {reply}")
        data = b"".join(self.read(ItlaRegister.AEA_EAR).to_bytes(2, "big") for _ in range((reply.data + 1) // 2))
        return data[: reply.data]

    def probe(self, deadline: Deadline) -> bool:
        """Ask two registers in turn; after a failure first send one zero byte.

        A module that waits for the rest of a damaged request takes our bytes for it: shifted by one byte each time, one
        round meets its frames. Zeros are the request NOP, which changes nothing. A request behind zeros has a right
        checksum too, but is of another register: OPSH (0x51) would be 0x40 or 0x00.
        """
        if not self._is_first_probe:
            self.send(b"\0", deadline)
            # It may have completed a request.
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

    def _ask(self, what: str, request: bytes, register: int) -> Reply:
        """Send a request until a good reply comes.

        Reads and absolute writes may be repeated. After a damaged reply to a write the reply is asked for again first:
        it counts if it is that of this write.
        """
        is_write = request != read_request(register)
        # Each read of AEA-EAR moves the module's pointer on: a repeat would skip two bytes of the text.
        attempts = 1 if register == ItlaRegister.AEA_EAR else _ATTEMPTS
        with self.exchange(what) as deadline:
            frame, message = b"", request
            for _ in range(attempts):
                self.send(message, deadline)
                frame = self.receive_exactly(FRAME_BYTES, what, deadline)
                reply = decode_reply(frame)
                is_first = message == request
                if reply is not None and not reply.damaged:
                    if reply.register == register and (is_first or frame[2:] == request[2:]):
                        return reply
                    # A good reply to another request: replies and requests are
                    # out of step, and repeating would keep them so.
                    if is_first:
                        break
                # LstRsp asks for the reply again without executing the write once
                # more. Of a read the request itself is repeated, which is as good.
                message = repeat_request() if reply is None and is_write and is_first else request
            raise self._frame_error(what, f"no reply to it: {shown(frame)}")

    def _accepted(self, what: str, reply: Reply) -> Reply:
        """Return a reply that is no execution error; else ask why, and raise that."""
        if reply.status is not ItlaReplyStatus.EXECUTION_ERROR:
            return reply
        # An execution error names no cause: bits 3-0 of NOP hold that of the last command (OIF-ITLA-MSA-01.3).
        data = self._ask("read 0x00", read_request(ItlaRegister.NOP), ItlaRegister.NOP).data
        code = data & 0x0F
        kind, words = _ERRORS.get(code, (DeviceError, f"error {code}"))
        raise self.error(kind, f"{what}: {words}", code=code, command=what, hint="Nothing was changed.")
