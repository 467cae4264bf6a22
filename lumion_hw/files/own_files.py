"""Recognizes files that this program wrote, by their first or last bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lumion_hw.errors import LumionError

CREATOR = "lumion-hw"
"""Program name, for file formats with such a field."""
_CHECKED_BYTES = 4096
_NAME = CREATOR.encode()

_BEGINNINGS: dict[str, bytes] = {
    "calibration record, mesh, parameters": rb'\{\s*"(schema|format)": "lumion-',
    "endpoints": rb'\{\s*"[^"\\]+": "(tcp|serial|visa|i2c|ftdi|file)[a-z0-9+]*://',
    "journal of a calibration": rb'[0-9a-f]{8} \{"n":0,"kind":"header"',
    "snapshot of settings": rb"format: lumion-snapshot \d",
    "documents of a recording": rb'\{"name": "start", "doc": \{"software": "%s' % _NAME,
    "event log": rb'\s*\{"bench_s": ',
    "table of a record": (
        rb"puc,passive_phase_rad,|puc,arm,channel,rho2_rad_per_ma2,|port,input_loss_db,|joint,puc_port,other_puc_port,"
    ),
    "page": rb'<!DOCTYPE html>\s*<html lang="en">\s*<head><meta charset="utf-8"><meta name="generator" content="%s">'
    % _NAME,
    "report as Markdown": rb"<!-- %s -->\n" % _NAME,
    "phase file, files for NCCL": rb"# %s\n" % _NAME,
    "topology for NCCL": rb'<system version="1" name="%s ' % _NAME,
    "picture of a mesh": rb"<svg [^>]*>\s*<!-- %s -->" % _NAME,
    "plot as SVG": rb"<\?xml [^>]*>\s*<!DOCTYPE svg(?s:.)*<dc:creator>\s*<cc:Agent>\s*<dc:title>%s</dc:title>" % _NAME,
    "plot as PNG": rb"\x89PNG\r\n\x1a\n(?s:.)*tEXtSoftware\x00%s" % _NAME,
}
"""Pattern at the beginning of each kind of file."""
_ENDINGS: dict[str, bytes] = {
    "arrays as npz": rb"PK\x05\x06(?s:.){16}\x09\x00%s\Z" % _NAME,
    "plot as PDF": rb"/Creator \(%s\)(?s:.)*%%%%EOF\s*\Z" % _NAME,
}
"""Pattern at the end of files that have the program name there."""


def _any_of(patterns: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(b"(?:%s)" % pattern for pattern in patterns))


_BEGINNING, _ENDING = _any_of(_BEGINNINGS.values()), _any_of(_ENDINGS.values())
_HDF5 = b"\x89HDF\r\n\x1a\n"


def is_own_file(path: Path) -> bool:
    """Return whether a file was written by this program or is empty.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(_CHECKED_BYTES)
        size = file.seek(0, 2)
        file.seek(max(size - _CHECKED_BYTES, 0))
        tail = file.read(_CHECKED_BYTES)
    if head.startswith(_HDF5):
        return _is_own_hdf5(path)
    return not head or _BEGINNING.match(head) is not None or _ENDING.search(tail) is not None


def _is_own_hdf5(path: Path) -> bool:
    from lumion_hw.files.hdf5 import open_hdf5  # imports numpy, which most callers do not need

    try:
        with open_hdf5(path, "file") as file:
            return file.creator() == CREATOR
    except LumionError:  # damaged, of another kind, or h5py is missing: not known to be our own
        return False
