"""COBS byte stuffing (section 2.2), with the C extension of the package ``cobs`` if installed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from types import BuiltinFunctionType

_ZEROS = re.compile(rb"(\0{4,})")
_ONE_BYTES = re.compile(rb"\x01+")
_GROUP = 254
_CODES = [bytes([length + 1]) for length in range(_GROUP + 1)]


class StuffingError(ValueError):
    """The bytes are not a valid COBS block."""


def _long_run(run: bytes, *, last: bool) -> bytes:
    full, remainder = divmod(len(run), _GROUP)
    groups = [b"\xff" + run[i * _GROUP : (i + 1) * _GROUP] for i in range(full)]
    # A run of a multiple of 254 bytes needs a closing group only if a zero follows. At the end of the content
    # it is left out: this shorter form keeps 508 bytes within an MTU of 512 (section 2.2).
    if remainder or not last:
        groups.append(_CODES[remainder] + run[full * _GROUP :])
    return b"".join(groups)


def encode_plain(content: bytes) -> bytes:
    """Return the COBS form of ``content``, in plain Python."""
    groups: list[bytes] = []
    # Without this, a table of zeros (mesh off) would be the slowest to encode.
    parts = _ZEROS.split(content) if b"\0\0\0\0" in content else [content]  # zeros are at the odd places
    end = len(parts) - 1
    for index, part in enumerate(parts):
        if index % 2:
            groups.append(b"\x01" * (len(part) - 1))
            continue
        runs = part.split(b"\0")
        closing = runs.pop() if index == end else None
        groups += [_CODES[len(run)] + run if len(run) < _GROUP else _long_run(run, last=False) for run in runs]
        if closing is not None:
            groups.append(_CODES[len(closing)] + closing if len(closing) < _GROUP else _long_run(closing, last=True))
    return b"".join(groups)


def decode_plain(block: bytes) -> bytes:
    """Return the content of a COBS block without delimiters, in plain Python.

    Raises:
        StuffingError: The block is not valid.
    """
    if b"\0" in block:
        raise StuffingError(f"there is a zero at byte {block.index(0)} inside a block of {len(block)} bytes")
    groups: list[bytes] = []
    pos, end = 0, len(block)
    while pos < end:
        code = block[pos]
        if code == 1:
            # A code 1 is an empty group: a single zero. A run of them is handled at once.
            one_bytes = _ONE_BYTES.match(block, pos)
            count = len(one_bytes.group()) if one_bytes else 1
            pos += count
            groups.append(bytes(count if pos < end else count - 1))
            continue
        if pos + code > end:
            raise StuffingError(f"code byte {code} at {pos} points beyond a block of {end} bytes")
        groups.append(block[pos + 1 : pos + code])
        pos += code
        # No zero follows a full group or the last group.
        if code != 0xFF and pos < end:
            groups.append(b"\0")
    return b"".join(groups)


_Codec = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes], type[Exception]]


def _native() -> _Codec | None:
    try:
        package = importlib.import_module("cobs.cobs")
    except ImportError:
        return None
    if not isinstance(package.encode, BuiltinFunctionType):
        return None
    return package.encode, package.decode, package.DecodeError


cobs_encode, decode_raw, DecodeFailure = _native() or (encode_plain, decode_plain, StuffingError)
"""Encoder, decoder and exception. ``cobs_encode(content)`` returns the COBS form of ``content``, without delimiters."""
