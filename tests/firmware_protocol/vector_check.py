"""Checks of the locked records, one function per kind; each returns the problems of a record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

import numpy as np

import firmware_protocol as fp

VECTORS: dict[str, Any] = json.loads(resources.files("firmware_protocol").joinpath("vectors.json").read_text())
_BYTES = ("mask", "data", "dark")


def build(record: dict[str, Any]) -> Any:
    """Create the message that a record describes."""
    fields = {name: bytes.fromhex(value) if name in _BYTES else value for name, value in record["fields"].items()}
    if record["message"] == "Refusal":
        return fp.Refusal(record["header"]["status"], **fields)
    kind = getattr(fp, record["message"])
    if kind is fp.FaultListReply:
        fields["records"] = tuple(fp.FaultRecord(**fault) for fault in fields["records"])
    return kind(**fields)


def shown(value: object) -> object:
    """Convert a decoded field to its form in the file."""
    if isinstance(value, np.ndarray):
        return [list(row) for row in value.tolist()] if value.ndim > 1 or value.dtype.names else value.tolist()
    if isinstance(value, tuple):
        return [{name: shown(part) for name, part in vars(fault).items()} for fault in value]
    return value.hex() if isinstance(value, bytes) else value


def decoded(record: dict[str, Any]) -> object:
    """Return the fields of the record's payload in the form they have in the file."""
    payload = bytes.fromhex(record["payload"])
    if record["message"] == "Refusal":
        refusal = fp.Refusal.decode(record["header"]["status"], payload)
        return {name: getattr(refusal, name) for name in record["fields"]}
    message = getattr(fp, record["message"]).decode(payload)
    return {name: shown(getattr(message, name)) for name in record["fields"]}


def build_image(fields: dict[str, Any]) -> fp.SweepImage:
    """Create the sweep image that a record describes."""
    points = tuple(
        fp.SweepPoint(
            [tuple(pair) for pair in point["changes"]],  # type: ignore[arg-type]
            point["table"],
            point["timing"] and fp.PointTiming(*point["timing"]),
        )
        for point in fields["points"]
    )
    return fp.SweepImage(**dict(fields, points=points, mask=bytes.fromhex(fields["mask"])))


def frame_problems(record: dict[str, Any]) -> Iterator[str]:
    """Yield the problems of one record of ``frames``."""
    wire, payload = bytes.fromhex(record["wire"]), bytes.fromhex(record["payload"])
    frame = fp.Frame(**record["header"], payload=payload)
    decoder = fp.Decoder(512)
    if fp.Decoder(512).feed(wire) != [frame]:
        yield "decodes to something else"
    if [found for i in range(len(wire)) for found in decoder.feed(wire[i : i + 1])] != [frame]:
        yield "decodes to something else byte by byte"
    if fp.encode_frame(frame) != wire:
        yield "header and payload encode to other bytes"
    if build(record).encode() != payload:
        yield "fields encode to another payload"
    if decoded(record) != record["fields"]:
        yield "payload decodes to other fields"


def image_problems(record: dict[str, Any]) -> Iterator[str]:
    """Yield the problems of one record of ``images``."""
    data, image = bytes.fromhex(record["bytes"]), build_image(record["fields"])
    back = fp.SweepImage.decode(data, record["n_dac"], record["n_adc"])
    if image.encode() != data or back != image:
        yield "fields and bytes differ"
    if image.crc32() != record["crc32"]:
        yield "has another CRC"
    if back.monitors(record["n_adc"]).tolist() != record["monitors"]:
        yield "selects other monitors"
    if [table.tolist() for table in back.tables(np.array(record["base"]))] != record["tables"]:
        yield "drives other tables"


def all_problems(vectors: dict[str, Any]) -> list[str]:
    """Return the problems of the frames and images of a whole file, each with its name."""
    checks = (("frames", frame_problems), ("images", image_problems))
    return [f"{record['name']}: {text}" for kind, check in checks for record in vectors[kind] for text in check(record)]
