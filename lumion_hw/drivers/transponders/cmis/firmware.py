"""Firmware of CMIS modules: download to the inactive bank, run, commit, copy.

The running image is never changed, so an update can be interrupted at any step.
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
"""Called with the bytes written and the size of the file."""

BOOT_S = 90.0
"""Time in s for a module to respond after starting an image."""
RUN_DELAY_MS = 100
"""Delay in ms between the reply to the run command and the restart."""
_RESTARTING_S = 5e-3 * RUN_DELAY_MS  # until the module has restarted; earlier replies come from the old image
_NAMES = "AB"
_T = TypeVar("_T")


def images(module: ModuleContext) -> Images:
    """Return the stored firmware images A and B. Raises the errors of :func:`cdb.command`."""
    return _decoded(module, decode_firmware_info, cdb.command(module, CdbCommand.FIRMWARE_INFO))


def features(module: ModuleContext) -> FirmwareFeatures:
    """Return which methods of firmware download the module supports. Raises the errors of :func:`cdb.command`."""
    # Blocks must not be longer than the existing pages.
    pages = EPL_PAGES.get(module.advertised.number("cdb_epl_pages"), 0)
    reply = cdb.command(module, CdbCommand.FIRMWARE_FEATURES)
    return _decoded(module, lambda payload: decode_firmware_features(payload, pages), reply)


def download(module: ModuleContext, file: bytes, progress: Progress) -> None:
    """Write a vendor's file to the inactive bank. The running image does not change.

    Raises:
        NotSupportedError: The module does not accept firmware over its command data block.
        DeviceError: The module refused the file or a part of it.
        VerifyError: The module accepted the file, but the image is not valid.
    """
    supported = features(module)
    module.needs(supported.block_bytes, "firmware over the command data block")
    bank = _inactive_bank(module, images(module))
    if len(file) <= supported.start_bytes:
        raise module.error(DeviceError, f"a file of {len(file)} bytes is too short for firmware", "Check the file.")
    _command(
        module, CdbCommand.FIRMWARE_START, encode_start(len(file), file[: supported.start_bytes]), supported.start_s
    )
    with _aborted_if_failed(module, supported):
        _write_blocks(
            module,
            file[supported.start_bytes :],
            supported,
            lambda done: progress(supported.start_bytes + done, len(file)),
        )
        _command(module, CdbCommand.FIRMWARE_COMPLETE, b"", supported.complete_s)
    # Read back, because completion only means that the command was executed.
    image = images(module)[bank]
    if image is None or not image.valid:
        raise module.error_verify(
            f"firmware image {_NAMES[bank]}",
            "valid",
            "missing" if image is None else "invalid",
            "Download the file again. The module continues with its present image.",
        )


def run(module: ModuleContext, *, inactive: bool, hitless: bool) -> None:
    """Restart the module with the inactive or the active firmware image and wait until the module responds.

    Raises:
        NotSupportedError: The module cannot restart without interrupting the traffic, as ``hitless`` requires.
        DeviceError: The image is not valid, or the module refused.
        DeviceTimeoutError: The module did not respond in time.
        VerifyError: The module started with a different image.
    """
    before = images(module)
    target = _inactive_bank(module, before) if inactive else 1 - _inactive_bank(module, before)
    image = before[target]
    if image is None or not image.valid:
        raise module.error(DeviceError, f"firmware image {_NAMES[target]} is not valid", "Download it first.")
    if hitless:
        module.needs(features(module).hitless, "a restart without interrupting the traffic")
    payload = encode_run(inactive=inactive, hitless=hitless, delay_ms=RUN_DELAY_MS)
    with contextlib.suppress(LinkError):  # the module may restart before its reply is read
        cdb.command(module, CdbCommand.FIRMWARE_RUN, payload, first_poll_s=1e-3, replies=False)
    module.clock.sleep(_RESTARTING_S)
    # After a restart page 00h is selected.
    module.memory.pages.forget()
    module.wait(lambda: _is_responding(module), BOOT_S, lambda: f"no answer after starting image {_NAMES[target]}")
    image = images(module)[target]
    if image is None or not image.running:
        raise module.error_verify(
            "running firmware image",
            _NAMES[target],
            "the other image",
            "The module started its other image. Check both images.",
        )


def commit(module: ModuleContext) -> None:
    """Use the running image after future resets.

    Raises ``DeviceError`` if the module refused, and ``VerifyError`` if the running image is not committed afterwards.
    """
    _command(module, CdbCommand.FIRMWARE_COMMIT, b"", 0.0)
    if not any(image and image.running and image.committed for image in images(module)):
        raise module.error_verify(
            "committed firmware image", "the running image", "a different image", "Check the images of the module."
        )


def copy(module: ModuleContext, source: str) -> None:
    """Copy firmware image ``A`` or ``B`` to the other bank.

    Raises:
        NotSupportedError: The module cannot copy images.
        DeviceError: The module refused the command.
        VerifyError: The copy is not valid.
    """
    supported = features(module)
    module.needs(supported.copy, "copying firmware images")
    _command(module, CdbCommand.FIRMWARE_COPY, encode_copy(source), supported.copy_s)
    target = 1 - _NAMES.index(source)
    image = images(module)[target]
    if image is None or not image.valid:
        raise module.error_verify(f"firmware image {_NAMES[target]}", "valid", "invalid", "Copy or download it again.")


def _write_blocks(
    module: ModuleContext, body: bytes, supported: FirmwareFeatures, progress: Callable[[int], None]
) -> None:
    size = supported.block_bytes
    for start in range(0, len(body), size):
        block = body[start : start + size]
        is_last = start + size >= len(body)
        # The last block is always sent, so that the module receives the end of the image.
        if not (supported.skip_erased and not is_last and block == bytes([supported.erased_byte]) * len(block)):
            address = encode_address(start)
            cdb.command(
                module,
                CdbCommand.FIRMWARE_WRITE_EPL if supported.extended else CdbCommand.FIRMWARE_WRITE_LPL,
                address if supported.extended else address + block,
                extended=block if supported.extended else b"",
                max_write=min(supported.write_bytes, HALF_BYTES),
                reply_timeout_s=supported.write_s,
                first_poll_s=0.0,
                replies=False,
            )
        progress(start + len(block))


@contextlib.contextmanager
def _aborted_if_failed(module: ModuleContext, supported: FirmwareFeatures) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if supported.abort:
            with contextlib.suppress(LumionError):
                _command(module, CdbCommand.FIRMWARE_ABORT, b"", supported.abort_s)
        raise


def _command(module: ModuleContext, number: CdbCommand, payload: bytes, timeout_s: float) -> None:
    cdb.command(module, number, payload, reply_timeout_s=timeout_s, replies=False)


def _inactive_bank(module: ModuleContext, stored: Images) -> int:
    running = [bank for bank, image in enumerate(stored) if image is not None and image.running]
    if len(running) != 1:
        raise module.error(
            NotSupportedError,
            f"the module reports that {'both images run' if running else 'neither image runs'}",
            "The module may run its factory image or have only one bank. Use the vendor's tool.",
        )
    return 1 - running[0]


def _is_responding(module: ModuleContext) -> bool:
    try:
        # Other states mean that the module is still starting.
        return module.memory.number("module_state") in (ModuleState.LOW_PWR, ModuleState.READY)
    except LumionError:
        module.memory.pages.forget()
        return False


def _decoded(module: ModuleContext, decode: Callable[[bytes], _T], reply: bytes) -> _T:
    try:
        return decode(reply)
    except ValueError as error:
        raise module.error(FrameError, str(error), "The reply of the module is invalid.") from error
