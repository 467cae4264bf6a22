"""Modules on a Linux I2C bus (``/dev/i2c-N``) through smbus2. Experimental: never tried on hardware by this project.

Plain I2C messages with a repeated start are used, never SMBus block calls, which stop at 32 bytes. USB bridges with a
kernel driver (CP2112, FT260, MCP2221 ...) are such buses too; some read less than 128 bytes at a time: say so.
"""

from __future__ import annotations

import errno
from typing import Any

from lumion_hw.sessions.i2c_adapter import I2cAdapter

_NOT_ACKNOWLEDGED = (errno.ENXIO, errno.EREMOTEIO, errno.ETIMEDOUT, errno.EAGAIN)


class SmbusAdapter(I2cAdapter):
    """A Linux I2C bus; its address is ``i2c://1`` for ``/dev/i2c-1``."""

    module = "smbus2"
    extra = "i2c"
    what = "the Linux I2C bus"

    _open_hint = "Load the i2c-dev kernel module and give this user access to the bus."

    def _opened_handle(self) -> Any:
        return self._library.SMBus(int(self._address.partition("://")[2].partition("?")[0]))

    def _release(self, handle: Any) -> None:
        handle.close()

    def _exchange(self, handle: Any, device: int, out: bytes, n_read: int) -> bytes:
        message = self._library.i2c_msg
        written = message.write(device, list(out))
        if not n_read:
            handle.i2c_rdwr(written)
            return b""
        reply = message.read(device, n_read)
        handle.i2c_rdwr(written, reply)
        return bytes(list(reply))

    def _is_silence(self, error: Exception) -> bool:
        return isinstance(error, OSError) and error.errno in _NOT_ACKNOWLEDGED

    def _lost_hint(self, error: Exception) -> str:
        busy = isinstance(error, OSError) and error.errno == errno.EBUSY
        return "Unbind the kernel driver first." if busy else "Check the adapter."
