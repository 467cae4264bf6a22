"""Canonical COBS (section 2.2): the shorter of the two legal forms is sent, both are accepted.

Plain Python with a fast path for runs of zeros (the "all heaters off" table); the C extension of the ``cobs`` package
is used when it is installed and gives the same bytes.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

_RUN = re.compile(rb"([^\0]*)(\0*)", re.DOTALL)
_ONES = re.compile(rb"\x01+")
_GROUP = 254


class StuffingError(ValueError):
    """The bytes are no COBS block: a code byte points beyond the end, or is zero."""


def _encode_run(run: bytes, *, last: bool) -> bytes:
    out = bytearray()
    start, length = 0, len(run)
    while length - start > _GROUP:
        out += b"\xff" + run[start : start + _GROUP]
        start += _GROUP
    if length - start == _GROUP:
        out += b"\xff" + run[start:]
        if not last:
            out.append(1)
    else:
        out.append(length - start + 1)
        out += run[start:]
    return bytes(out)


def encode_plain(content: bytes) -> bytes:
    """Return the canonical COBS form of ``content``, in plain Python."""
    out: list[bytes] = []
    for match in _RUN.finditer(content):
        run, zeros = match.groups()
        if not run and not zeros:
            break
        out.append(_encode_run(run, last=not zeros))
        if zeros:
            out.append(b"\x01" * (len(zeros) - 1))
    if not content or not content[-1]:
        out.append(b"\x01")
    return b"".join(out)


def decode_plain(block: bytes) -> bytes:
    """Return the content of a COBS block without delimiters, in plain Python.

    Raises:
        StuffingError: A code byte is zero or points beyond the end.
    """
    out: list[bytes] = []
    pos, end = 0, len(block)
    while pos < end:
        code = block[pos]
        if code == 1:
            ones = _ONES.match(block, pos)
            count = len(ones.group()) if ones else 1
            pos += count
            out.append(bytes(count if pos < end else count - 1))
            continue
        piece = block[pos + 1 : pos + code]
        if code == 0 or len(piece) < code - 1 or b"\0" in piece:
            raise StuffingError(f"code byte {code} at {pos} does not fit a block of {end} bytes")
        out.append(piece)
        pos += code
        if code != 0xFF and pos < end:
            out.append(b"\0")
    return b"".join(out)


def _native() -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]] | None:
    try:
        package = importlib.import_module("cobs.cobs")
    except ImportError:
        return None
    failure: type[Exception] = package.DecodeError

    def decode(block: bytes) -> bytes:
        try:
            return bytes(package.decode(block))
        except failure as error:
            raise StuffingError(str(error)) from error

    def encode(content: bytes) -> bytes:
        return bytes(package.encode(content))

    return encode, decode


_CODEC = _native() or (encode_plain, decode_plain)


def cobs_encode(content: bytes) -> bytes:
    """Return the canonical COBS form of ``content``, without delimiters."""
    return _CODEC[0](content)


def cobs_decode(block: bytes) -> bytes:
    """Return the content of a COBS block without delimiters; both legal forms are accepted.

    Raises:
        StuffingError: The block is damaged.
    """
    return _CODEC[1](block)
