"""Firmware of a CMIS module: what is stored, a new image into the bank that does not run, run, commit, roll back.

The bank that runs is never written. An image that was run but not committed is gone after the next reset: the committed
one runs again. So an update can be cut off at any step, and the module comes up with an image that is good.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from lumion_hw.drivers.transponders.cmis import cdb
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.errors import DeviceError, FrameError, LinkError, LumionError, NotSupportedError
from lumion_hw.standards.cmis.codec import EPL_PAGES
from lumion_hw.standards.cmis.codes import CdbCommand, ModuleState
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.firmware import (
    FirmwareFeatures,
    FirmwareImage,
    decode_firmware_features,
    decode_firmware_info,
    encode_address,
    encode_copy,
    encode_run,
    encode_start,
)

Images = tuple[FirmwareImage | None, FirmwareImage | None]
Progress = Callable[[int, int], None]
"""Told the bytes written and the bytes of the file."""

BOOT_S = 90.0
"""Time until a module that starts another image answers; the standard bounds only the management interface, 2 s."""
RUN_DELAY_MS = 100
"""Between the answer to the run command and the restart: time to read that answer."""
_RESTARTING_S = 5e-3 * RUN_DELAY_MS  # until the module is surely on its way: what answers before is the old image
_NAMES = "AB"
_T = TypeVar("_T")


def images(module: ModuleContext) -> Images:
    """Return the stored images A and B. Raises as :func:`cdb.command`."""
    return _decoded(module, decode_firmware_info, cdb.command(module, CdbCommand.FIRMWARE_INFO))


def features(module: ModuleContext) -> FirmwareFeatures:
    """Return how this module takes firmware. Raises as :func:`cdb.command`."""
    # A block longer than the pages that the module has would be written to pages that it has not.
    pages = EPL_PAGES.get(module.advertised.number("cdb_epl_pages"), 0)
    reply = cdb.command(module, CdbCommand.FIRMWARE_FEATURES)
    return _decoded(module, lambda payload: decode_firmware_features(payload, pages), reply)


def download(module: ModuleContext, file: bytes, progress: Progress) -> None:
    """Write a vendor's file into the bank that does not run. Whatever ends it early, the running image is untouched.

    Raises:
        NotSupportedError: The module takes no firmware over its command data block.
        DeviceError: The module refused the file or a part of it.
        VerifyError: The module took everything and does not call the image valid.
    """
    can = features(module)
    module.needs(can.block_bytes, "firmware over the command data block")
    bank = _spare_bank(module, images(module))
    if len(file) <= can.start_bytes:
        raise module.error(DeviceError, f"{len(file)} bytes are no firmware file", "Check the file.")
    _command(module, CdbCommand.FIRMWARE_START, encode_start(len(file), file[: can.start_bytes]), can.start_s)
    with _aborted_if_failed(module, can):
        _write_blocks(module, file[can.start_bytes :], can, lambda done: progress(can.start_bytes + done, len(file)))
        _command(module, CdbCommand.FIRMWARE_COMPLETE, b"", can.complete_s)
    # Read back rather than believed: the completion only says that the command was carried out.
    found = images(module)[bank]
    if found is None or not found.valid:
        raise module.error_verify(
            f"firmware image {_NAMES[bank]}",
            "valid",
            "missing" if found is None else "invalid",
            "Download it again; the module runs on with the image it has.",
        )


def run(module: ModuleContext, *, inactive: bool, hitless: bool) -> None:
    """Restart the module with the other image, or with the one that runs, and wait until it answers.

    Raises:
        DeviceError: The image is not valid, or the module refused.
        DeviceTimeoutError: It did not come back.
        VerifyError: It came back with another image: what it ran before, or a fallback.
    """
    before = images(module)
    wanted = _spare_bank(module, before) if inactive else 1 - _spare_bank(module, before)
    image = before[wanted]
    if image is None or not image.valid:
        raise module.error(DeviceError, f"image {_NAMES[wanted]} is not valid", "Download it first.")
    if hitless:
        module.needs(features(module).hitless, "a restart that leaves the traffic alone")
    payload = encode_run(inactive=inactive, hitless=hitless, delay_ms=RUN_DELAY_MS)
    with contextlib.suppress(LinkError):  # a module may be gone before its answer is read
        cdb.command(module, CdbCommand.FIRMWARE_RUN, payload, first_look_s=1e-3, replies=False)
    module.clock.sleep(_RESTARTING_S)
    # A restarted module shows page 00h, whatever was selected before.
    module.memory.pages.forget()
    module.wait(lambda: _answers(module), BOOT_S, lambda: f"no answer after starting image {_NAMES[wanted]}")
    found = images(module)[wanted]
    if found is None or not found.running:
        raise module.error_verify(
            "running firmware image", _NAMES[wanted], "the other one", "The module fell back; look at its images."
        )


def commit(module: ModuleContext) -> None:
    """Make the running image the one that starts from now on.

    Raises:
        DeviceError: The module refused.
        VerifyError: It does not say so afterwards.
    """
    _command(module, CdbCommand.FIRMWARE_COMMIT, b"", 0.0)
    if not any(image and image.running and image.committed for image in images(module)):
        raise module.error_verify("committed firmware image", "the running one", "another one", "Look at its images.")


def copy(module: ModuleContext, source: str) -> None:
    """Copy image ``A`` or ``B`` into the other bank.

    Raises:
        NotSupportedError: The module does not copy images.
        DeviceError: The module refused.
        VerifyError: The copy is not valid.
    """
    can = features(module)
    module.needs(can.copy, "copying firmware images")
    _command(module, CdbCommand.FIRMWARE_COPY, encode_copy(source), can.copy_s)
    target = 1 - _NAMES.index(source)
    found = images(module)[target]
    if found is None or not found.valid:
        raise module.error_verify(f"firmware image {_NAMES[target]}", "valid", "invalid", "Copy or download it again.")


def _write_blocks(module: ModuleContext, body: bytes, can: FirmwareFeatures, progress: Callable[[int], None]) -> None:
    size = can.block_bytes
    for start in range(0, len(body), size):
        block = body[start : start + size]
        is_last = start + size >= len(body)
        # The last block is always sent: with it the module has seen the end of the image.
        if not (can.skip_erased and not is_last and block == bytes([can.erased_byte]) * len(block)):
            address = encode_address(start)
            cdb.command(
                module,
                CdbCommand.FIRMWARE_WRITE_EPL if can.extended else CdbCommand.FIRMWARE_WRITE_LPL,
                address if can.extended else address + block,
                extended=block if can.extended else b"",
                longest_write=min(can.write_bytes, HALF_BYTES),
                within_s=can.write_s,
                first_look_s=0.0,
                replies=False,
            )
        progress(start + len(block))


@contextlib.contextmanager
def _aborted_if_failed(module: ModuleContext, can: FirmwareFeatures) -> Iterator[None]:
    """End a download that failed, so that the next one can begin; Ctrl-C is such a failure."""
    try:
        yield
    except BaseException:
        if can.abort:
            with contextlib.suppress(LumionError):
                _command(module, CdbCommand.FIRMWARE_ABORT, b"", can.abort_s)
        raise


def _command(module: ModuleContext, number: CdbCommand, payload: bytes, within_s: float) -> None:
    cdb.command(module, number, payload, within_s=within_s, replies=False)


def _spare_bank(module: ModuleContext, stored: Images) -> int:
    """Return the bank that does not run: 0 for A, 1 for B."""
    running = [bank for bank, image in enumerate(stored) if image is not None and image.running]
    if len(running) != 1:
        raise module.error(
            NotSupportedError,
            f"{'both images run' if running else 'neither image runs'}, says the module",
            "It runs its factory image, or has no two banks; use the vendor's tool.",
        )
    return 1 - running[0]


def _answers(module: ModuleContext) -> bool:
    try:
        # A module in its start-up says Reset; before that its registers mean nothing.
        return module.memory.number("module_state") in (ModuleState.LOW_PWR, ModuleState.READY)
    except LumionError:
        module.memory.pages.forget()
        return False


def _decoded(module: ModuleContext, decode: Callable[[bytes], _T], reply: bytes) -> _T:
    try:
        return decode(reply)
    except ValueError as error:
        raise module.error(FrameError, str(error), "The module's answer cannot be used.") from error
