"""Tables of the LUMION mesh controller: driven whole, proven by their CRC, read back (protocol section 8)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    DRIVEN_TABLE,
    CommitReply,
    CommitRequest,
    HelloReply,
    Message,
    ReadbackReply,
    ReadbackRequest,
    Request,
    SetRequest,
    StageRequest,
    max_payload,
    next_generation,
    table_crc32,
)
from lumion_hw.clock import Clock
from lumion_hw.drivers.mesh.lumion.config import limit_error_in_ma
from lumion_hw.errors import LIST_FAULTS, DeviceAddress, LimitError, LinkError, LinkTimeout, LumionError, VerifyError
from lumion_hw.interfaces import Generation
from lumion_hw.sessions.framed.session import FramedSession

_log = logging.getLogger(__name__)

# Once more, since a latch between two pieces is the usual reason; twice in a row it is not.
_READBACK_TRIES = 2
_BANK = 0


@dataclass(frozen=True)
class BoardTable:
    """A whole table.

    Attributes:
        codes: Shape ``(n_heaters,)``.
        crc32: Its CRC-32.
    """

    codes: NDArray[np.uint16]
    crc32: int

    @classmethod
    def of(cls, codes: NDArray[np.uint16]) -> BoardTable:
        """Return the table of these codes."""
        return cls(codes, table_crc32(codes))


class Tables:
    """Drives tables and remembers which one was confirmed last.

    Args:
        session: The session.
        clock: Clock of the link.
        target: Device name and address, for messages.

    Attributes:
        generation: Newest generation used.
        confirmed: The table the controller confirmed last; ``None`` before the first one.
        in_flight: A table whose command was sent and never answered; ``None`` if there is none.
    """

    def __init__(self, session: FramedSession, clock: Clock, target: DeviceAddress) -> None:
        self._session = session
        self._clock = clock
        self._target = target
        self._bank_generation = 0
        self.generation = 0
        self.confirmed: BoardTable | None = None
        self.in_flight: BoardTable | None = None

    def attached(self, hello: HelloReply) -> None:
        """Continue with the numbers of a new session, whose banks are empty."""
        self.generation = hello.active_generation
        self._bank_generation = 0

    def next_generation(self) -> int:
        """Return a generation newer than every one used before."""
        self.generation = next_generation(self.generation)
        return self.generation

    def drive(self, codes: NDArray[np.uint16]) -> Generation:
        """Latch a table under a new generation and compare what the controller says it drives.

        Raises:
            LimitError: The controller refused it; currents are in mA.
            VerifyError: The controller confirmed another table.
            LinkTimeout: The controller did not answer; ``took_effect`` says whether the table was latched.
            LumionError: As of every request. After a ``LinkError`` that does not say it, the table is
                :attr:`in_flight`.
        """
        generation = self.next_generation()
        # Remembered before anything is sent: an interrupt between writing and reading leaves it unknown, too.
        self.in_flight = table = BoardTable.of(codes)
        reply: Message
        try:
            # Never sent again under a new generation: if the answer was lost
            # the table is driven already, and the caller decides (section 4.5).
            reply = self._session.request_all(self._requests(generation, table))[-1]
        except LinkTimeout as error:
            reply = self._what_became(generation, error)
        except LimitError as error:
            self.in_flight = None
            raise limit_error_in_ma(error, self._session.hello.dac_full_scale * 1e-3, self._target) from error
        except LumionError as error:
            # A refusal is an answer: nothing was latched.
            if not isinstance(error, LinkError):
                self.in_flight = None
            raise
        self.in_flight = None
        if not isinstance(reply, CommitReply) or not (
            reply.generation == generation and reply.crc32 == table.crc32 and reply.latched
        ):
            raise self._target.error(
                VerifyError,
                f"table {generation} was not confirmed",
                wrote=f"CRC 0x{table.crc32:08X}",
                read=f"{reply}",
                hint="Read back what is driven, then program again.",
            )
        self.confirmed = table
        return Generation(generation, table.crc32, self._clock.now())

    def _what_became(self, generation: int, error: LinkTimeout) -> CommitReply:
        """Ask which generation is driven, because nobody answered the command to drive this one.

        The question is a fraction of the size of a table, and gets through where that does not. It travels under a
        number by which the board refuses late copies of the command (section 4.5), so that a "no" stays true.

        Returns:
            What the answer to the command would have been.

        Raises:
            LinkTimeout: It was not executed; or that is not known either, because this was not answered.
        """
        try:
            # Without codes the question is 21 + 35 bytes on the wire: at a byte error rate
            # of 1e-3 19 in 20 get through, of a table of 144 channels 7 in 10 (section 4.5).
            driven = self._session.request(ReadbackRequest(DRIVEN_TABLE, rb_flags=0))
        except LinkTimeout:
            raise error from None
        if driven.generation == generation:
            _log.info("table %d was latched, its answers were lost", generation)
            return CommitReply(generation, driven.tick, driven.crc32, True, driven.outputs_state)
        self.in_flight = None
        told = self._target.error(
            LinkTimeout,
            f"{error.message} Asked, the controller drives table {driven.generation}: table {generation} was not "
            "latched, and will not be.",
            hint="Program it again.",
        )
        told.took_effect = False
        raise told from error

    def resolve_in_flight(self, driven_crc32: int) -> bool | None:
        """Return whether the unanswered table is the one driven now; ``None`` if there was none."""
        table, self.in_flight = self.in_flight, None
        if table is None:
            return None
        # By its content: between loss and return another host may have driven under any number.
        if table.crc32 == driven_crc32:
            self.confirmed = table
            return True
        return False

    def driven_crc32(self) -> int:
        """Ask for the CRC-32 of the table driven now."""
        return self._session.request(ReadbackRequest(DRIVEN_TABLE, rb_flags=0)).crc32

    def confirm(self, codes: NDArray[np.uint16]) -> None:
        """Prove that these codes are driven now. Raises ``VerifyError`` if others are."""
        table, driven_crc32 = BoardTable.of(codes), self.driven_crc32()
        if table.crc32 != driven_crc32:
            raise self._target.error(
                VerifyError,
                "another table is driven than planned",
                wrote=f"CRC 0x{table.crc32:08X}",
                read=f"CRC 0x{driven_crc32:08X}",
                hint=f"A fault switches the outputs off. {LIST_FAULTS}.",
            )
        self.confirmed = table

    def check_confirmed(self) -> None:
        """Forget the confirmed table if it is not driven any more: what a fault has ended is not to be resumed."""
        if self.confirmed is not None and self.confirmed.crc32 != self.driven_crc32():
            self.confirmed = None

    def drive_zeros(self) -> bool:
        """Bring the outputs to zero without latching a fault and tell whether they are; never raises."""
        zeros = BoardTable.of(np.zeros(self._session.hello.n_dac, dtype=np.uint16))
        try:
            self.drive(zeros.codes)
        except LumionError as error:
            _log.info("closing without driving zeros: %s", error)
        else:
            return True
        try:
            return self.driven_crc32() == zeros.crc32
        except LumionError:
            return False

    def read(self) -> BoardTable:
        """Read the table driven now.

        Raises:
            VerifyError: The codes do not have the checksum the controller gives for them.
        """
        with self._session.transaction():
            for _ in range(_READBACK_TRIES):
                codes, said = self._read_codes()
                table = BoardTable.of(codes)
                if {table.crc32} == said and len(codes) == self._session.hello.n_dac:
                    return table
        raise self._target.error(
            VerifyError,
            "READBACK: the codes do not have the checksum given for them",
            wrote=", ".join(f"CRC 0x{crc:08X}" for crc in sorted(said)),
            read=f"CRC 0x{table.crc32:08X}",
            hint="The table changed while it was read; read it again.",
        )

    def _requests(self, generation: int, table: BoardTable) -> list[Request[Message]]:
        """One SET where it fits the frame, else STAGE fragments and a COMMIT (section 8)."""
        codes = table.codes
        # By the bound of section 2.4, so that whether one frame does
        # depends on the number of channels alone and never on the codes.
        room = max_payload(self._session.hello.fw_rx_max)
        if SetRequest.layout.fixed_size + 2 * len(codes) <= room:
            return [SetRequest(generation, codes)]
        # A bank whose number has changed begins empty on the board: pieces
        # of an earlier attempt cannot end up in this table (section 8.1).
        self._bank_generation = bank = next_generation(self._bank_generation)
        per_frame = (room - StageRequest.layout.fixed_size) // 2
        stages = [
            StageRequest(bank, _BANK, start, codes[start : start + per_frame])
            for start in range(0, len(codes), per_frame)
        ]
        return [*stages, CommitRequest(generation, bank, table.crc32, _BANK, len(codes))]

    def _read_codes(self) -> tuple[NDArray[np.uint16], set[int]]:
        """Read the driven table in as many pieces as needed, with every checksum the controller gave for it."""
        hello = self._session.hello
        per_frame = (max_payload(hello.fw_tx_max) - ReadbackReply.layout.fixed_size) // 2
        replies = self._session.request_all(
            [
                ReadbackRequest(DRIVEN_TABLE, start=start, count=min(per_frame, hello.n_dac - start))
                for start in range(0, hello.n_dac, per_frame)
            ]
        )
        # Each piece carries the checksum of the whole table: if they differ, the table changed while it was read.
        pieces = [reply for reply in replies if isinstance(reply, ReadbackReply)]
        return np.concatenate([piece.codes for piece in pieces]), {piece.crc32 for piece in pieces}
