"""How a file that this program has made is told from any other: one plain look at how it begins or ends."""

from __future__ import annotations

import re
from pathlib import Path

from lumion_hw.errors import LumionError

MADE_BY = "lumion-hw"
"""What formats that have a place for it say of the program that wrote them."""
_LOOK_BYTES = 4096
_NAME = MADE_BY.encode()

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
    "picture of a mesh": rb"<svg [^>]*>\s*<!-- %s -->" % _NAME,
    "plot as SVG": rb"<\?xml [^>]*>\s*<!DOCTYPE svg(?s:.)*<dc:creator>\s*<cc:Agent>\s*<dc:title>%s</dc:title>" % _NAME,
    "plot as PNG": rb"\x89PNG\r\n\x1a\n(?s:.)*tEXtSoftware\x00%s" % _NAME,
}
"""Kinds of files, and how each begins."""
_ENDINGS: dict[str, bytes] = {
    "arrays as npz": rb"PK\x05\x06(?s:.){16}\x09\x00%s\Z" % _NAME,
    "plot as PDF": rb"/Creator \(%s\)(?s:.)*%%%%EOF\s*\Z" % _NAME,
}
"""Kinds of files that say it at their end."""
_BEGINS = re.compile(b"|".join(f"(?:{each.decode('latin-1')})".encode("latin-1") for each in _BEGINNINGS.values()))
_ENDS = re.compile(b"|".join(f"(?:{each.decode('latin-1')})".encode("latin-1") for each in _ENDINGS.values()))
_HDF5 = b"\x89HDF\r\n\x1a\n"


def made_here(path: Path) -> bool:
    """Return whether this program has made a regular file, or there is nothing in it to lose.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(_LOOK_BYTES)
        size = file.seek(0, 2)
        file.seek(max(size - _LOOK_BYTES, 0))
        tail = file.read(_LOOK_BYTES)
    if head.startswith(_HDF5):
        return _hdf5_made_here(path)
    return not head or _BEGINS.match(head) is not None or _ENDS.search(tail) is not None


def _hdf5_made_here(path: Path) -> bool:
    from lumion_hw.files.hdf5 import open_hdf5  # numpy: most files that are looked at are none of HDF5

    try:
        with open_hdf5(path, "file") as file:
            return file.made_by() == MADE_BY
    except LumionError:  # damaged, of another kind, or h5py is not there: nothing says that it is ours
        return False
