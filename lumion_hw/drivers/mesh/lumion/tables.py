"""Sets all heater currents together and verifies them (protocol section 8)."""

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

_READBACK_TRIES = 2  # a new table between two parts is the usual reason for the first failure
_BANK = 0


@dataclass(frozen=True)
class BoardTable:
    """DAC codes of all heaters.

    Attributes:
        codes: DAC code of each heater, shape ``(n_heaters,)``.
        crc32: CRC-32 of the codes.
    """

    codes: NDArray[np.uint16]
    crc32: int

    @classmethod
    def from_codes(cls, codes: NDArray[np.uint16]) -> BoardTable:
        """Return the table with these DAC codes."""
        return cls(codes, table_crc32(codes))


class Tables:
    """Sends the DAC codes of all heaters together, and remembers the last confirmed codes.

    Args:
        clock: Clock of the link.

    Attributes:
        generation: Highest number given to a table so far.
        confirmed: Last table confirmed by the controller; ``None`` before the first.
        in_flight: Table that was sent but not confirmed; ``None`` if there is none.
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
        """Continue the numbering of tables from a HELLO reply of the controller."""
        self.generation = hello.active_generation
        self._bank_generation = 0

    def next_generation(self) -> int:
        """Return a new table number."""
        self.generation = next_generation(self.generation)
        return self.generation

    def drive(self, codes: NDArray[np.uint16]) -> Generation:
        """Send DAC codes for all heaters and check the confirmation of the controller.

        Raises:
            LimitError: The controller refused the codes; the message gives currents in mA.
            VerifyError: The controller confirmed different codes.
            LinkTimeout: The controller did not answer; ``took_effect`` tells whether the codes are driven.
            LumionError: A request failed. After a ``LinkError`` without ``took_effect``, :attr:`in_flight` is set.
        """
        generation = self.next_generation()
        # Set before anything is sent: after an interrupt between writing and reading the result is also unknown.
        self.in_flight = table = BoardTable.from_codes(codes)
        reply: Message
        try:
            # Not sent again under a new generation: if only the answer was lost, the table is already driven, and the
            # caller decides (section 4.5).
            reply = self._session.request_all(self._requests(generation, table))[-1]
        except LinkTimeout as error:
            reply = self._resolve_timeout(generation, error)
        except LimitError as error:
            self.in_flight = None
            raise limit_error_in_ma(error, self._session.hello.dac_full_scale * 1e-3, self._target) from error
        except LumionError as error:
            # The controller refused the table and drives the previous one.
            if not isinstance(error, LinkError):
                self.in_flight = None
            raise
        self.in_flight = None
        if not isinstance(reply, CommitReply) or not (
            reply.generation == generation and reply.crc32 == table.crc32 and reply.latched
        ):
            raise self._target.error(
                VerifyError,
                f"the heater currents (setting {generation}) were not confirmed",
                wrote=f"CRC 0x{table.crc32:08X}",
                read=f"{reply}",
                hint="Read back the driven currents, then program again.",
            )
        self.confirmed = table
        return Generation(generation, table.crc32, self._clock.now())

    def _resolve_timeout(self, generation: int, error: LinkTimeout) -> CommitReply:
        """Ask the controller whether it executed a command that had no answer, and return the reply to that command.

        Raises:
            LinkTimeout: The command was not executed, or the controller still does not answer.
        """
        try:
            # Without codes the exchange has 21 + 35 bytes. At a byte error rate of 1e-3, 19 of 20 succeed, against 7 of
            # 10 for a table of 144 channels (section 4.5).
            driven = self._session.request(ReadbackRequest(DRIVEN_TABLE, rb_flags=0))
        except LinkTimeout:
            raise error from None
        if driven.generation == generation:
            _log.info("table %d of heater currents is driven, but the controller's answers were lost", generation)
            return CommitReply(generation, driven.tick, driven.crc32, True, driven.outputs_state)
        self.in_flight = None
        timeout = self._target.error(
            LinkTimeout,
            f"{error.message} The controller did not execute it: the heater currents have not changed.",
            hint="Program the currents again.",
        )
        timeout.took_effect = False
        raise timeout from error

    def resolve_in_flight(self, driven_crc32: int) -> bool | None:
        """Return whether the heaters have the currents of the unconfirmed table; ``None`` if there is no such table."""
        table, self.in_flight = self.in_flight, None
        if table is None:
            return None
        # Compared by content: another host may have used any generation in the meantime.
        if table.crc32 == driven_crc32:
            self.confirmed = table
            return True
        return False

    def driven_crc32(self) -> int:
        """Read the CRC-32 of the DAC codes that are driven now."""
        return self._session.request(ReadbackRequest(DRIVEN_TABLE, rb_flags=0)).crc32

    def confirm(self, codes: NDArray[np.uint16]) -> None:
        """Raise ``VerifyError`` if other DAC codes are driven now."""
        table, driven_crc32 = BoardTable.from_codes(codes), self.driven_crc32()
        if table.crc32 != driven_crc32:
            raise self._target.error(
                VerifyError,
                "the currents driven now are not the planned ones",
                wrote=f"CRC 0x{table.crc32:08X}",
                read=f"CRC 0x{driven_crc32:08X}",
                hint=f"A fault may have switched the outputs off. {LIST_FAULTS}.",
            )
        self.confirmed = table

    def check_confirmed(self) -> None:
        """Forget the confirmed table if it is no longer driven, for example after a fault."""
        if self.confirmed is not None and self.confirmed.crc32 != self.driven_crc32():
            self.confirmed = None

    def drive_zeros(self) -> bool:
        """Set all outputs to zero without latching a fault, and return whether this succeeded. Never raises."""
        zeros = BoardTable.from_codes(np.zeros(self._session.hello.n_dac, dtype=np.uint16))
        try:
            self.drive(zeros.codes)
        except LumionError as error:
            _log.info("closing, but the outputs could not be set to zero: %s", error)
        else:
            return True
        try:
            return self.driven_crc32() == zeros.crc32
        except LumionError:
            return False

    def read(self) -> BoardTable:
        """Read back the DAC codes that are driven now.

        Raises ``VerifyError`` if the codes do not match the controller's checksum.
        """
        with self._session.transaction():
            for _ in range(_READBACK_TRIES):
                codes, checksums = self._read_codes()
                table = BoardTable.from_codes(codes)
                if {table.crc32} == checksums and len(codes) == self._session.hello.n_dac:
                    return table
        raise self._target.error(
            VerifyError,
            "READBACK: the codes do not match their checksum",
            wrote=", ".join(f"CRC 0x{crc:08X}" for crc in sorted(checksums)),
            read=f"CRC 0x{table.crc32:08X}",
            hint="The currents changed during the reading. Read them again.",
        )

    def _requests(self, generation: int, table: BoardTable) -> list[Request[Message]]:
        codes = table.codes
        # With the bound of section 2.4, the choice depends only on the number of channels, not on the codes.
        room = max_payload(self._session.hello.fw_rx_max)
        if SetRequest.layout.fixed_size + 2 * len(codes) <= room:
            return [SetRequest(generation, codes)]
        # With a new bank generation the board starts with an empty bank, so that fragments of an earlier attempt cannot
        # become part of this table (section 8.1).
        self._bank_generation = bank = next_generation(self._bank_generation)
        per_frame = (room - StageRequest.layout.fixed_size) // 2
        stages = [
            StageRequest(bank, _BANK, start, codes[start : start + per_frame])
            for start in range(0, len(codes), per_frame)
        ]
        return [*stages, CommitRequest(generation, bank, table.crc32, _BANK, len(codes))]

    def _read_codes(self) -> tuple[NDArray[np.uint16], set[int]]:
        hello = self._session.hello
        per_frame = (max_payload(hello.fw_tx_max) - ReadbackReply.layout.fixed_size) // 2
        replies = self._session.request_all(
            [
                ReadbackRequest(DRIVEN_TABLE, start=start, count=min(per_frame, hello.n_dac - start))
                for start in range(0, hello.n_dac, per_frame)
            ]
        )
        # Each part contains the checksum of the whole table. If they differ, the table changed during the reading.
        parts = [reply for reply in replies if isinstance(reply, ReadbackReply)]
        return np.concatenate([part.codes for part in parts]), {part.crc32 for part in parts}
