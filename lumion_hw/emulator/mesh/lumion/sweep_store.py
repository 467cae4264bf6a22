"""The sweep image in the memory of the emulated board: received in pieces, checked when complete (section 10.2)."""

from __future__ import annotations

import zlib

from firmware_protocol import (
    ChannelError,
    Feature,
    ImageError,
    OutputsState,
    Refusal,
    Status,
    SweepImage,
    SweepLoadReply,
    SweepLoadRequest,
    SweepTrigger,
    image_refusal,
)
from lumion_hw.emulator.mesh.lumion.profile import BoardProfile


class ImageStore:
    """Holds one image; a new one takes its place.

    Args:
        profile: Memory, channels and features of the board.

    Attributes:
        sweep_id: Number of the image, 0 for none.
        total: Its length, B.
        received: Contiguous bytes from 0 held now.
        image: The image once it is complete and checked.
    """

    def __init__(self, profile: BoardProfile) -> None:
        self._profile = profile
        self.clear()

    def clear(self) -> None:
        """Forget the image."""
        self.sweep_id = self.total = self.received = 0
        self.image: SweepImage | None = None
        self._crc32 = 0
        self._data = bytearray()

    def load(self, request: SweepLoadRequest, state: OutputsState) -> SweepLoadReply | Refusal:
        """Take a piece: BUSY, BAD_VALUE, NO_MEMORY, INCOMPLETE for a hole; CRC and structure with the last one."""
        refusal = self._refuse_piece(request, state)
        if refusal is not None:
            return refusal
        end = request.offset + len(request.data)
        changed = self._data[request.offset : end] != request.data
        self._data[request.offset : end] = request.data
        self.received = max(self.received, end)
        if self.received == self.total and (changed or self.image is None):
            refusal = self._check()
        return SweepLoadReply(request.sweep_id, self.received) if refusal is None else refusal

    def _refuse_piece(self, request: SweepLoadRequest, state: OutputsState) -> Refusal | None:
        if state is OutputsState.SWEEP:
            return Refusal(Status.BUSY)
        wrong = request.out_of_range()
        if wrong is not None:
            return Refusal(Status.BAD_VALUE, channel=wrong[0], value=wrong[1])
        if request.total > self._profile.sweep_mem:
            return Refusal(Status.NO_MEMORY, value=request.total, limit=self._profile.sweep_mem)
        if (request.sweep_id, request.total, request.image_crc32) != (self.sweep_id, self.total, self._crc32):
            if request.offset:
                return Refusal(Status.INCOMPLETE, value=0, limit=request.total)
            self.clear()
            self.sweep_id, self.total, self._crc32 = request.sweep_id, request.total, request.image_crc32
        if request.offset > self.received:
            return Refusal(Status.INCOMPLETE, value=self.received, limit=self.total)
        return None

    def _check(self) -> Refusal | None:
        """Check the complete image; a wrong one is discarded."""
        profile, data, given = self._profile, bytes(self._data), self._crc32
        image, refusal = None, None
        computed = zlib.crc32(data)
        if computed != given:
            refusal = Refusal(Status.CRC_MISMATCH, value=computed, limit=given)
        else:
            try:
                image = SweepImage.decode(data, profile.n_dac, profile.n_adc)
            except (ImageError, ChannelError) as error:
                refusal = image_refusal(error)
        if image is not None and image.trigger is SweepTrigger.EXTERNAL and not profile.has(Feature.SWEEP_TRIGGER):
            refusal = Refusal(Status.NOT_SUPPORTED, value=Feature.SWEEP_TRIGGER)
        if refusal is not None:
            self.clear()
        else:
            self.image = image
        return refusal
