"""The C99 reference codec: every locked record, a broken record is found, and arbitrary bytes mean the same in both."""

from __future__ import annotations

import copy
import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cobs import cobs
from hypothesis import given, strategies as st

import firmware_protocol as fp
from firmware_protocol.generators.c_vectors import c_vectors
from tests.effort import examples
from tests.firmware_protocol.c_build import CODEC, SOURCES, compile_c, needs_compiler
from tests.firmware_protocol.vector_check import VECTORS, all_problems
from tests.waiting import PATIENCE_S

pytestmark = needs_compiler

RESULTS = {2: fp.BadCause.OVERSIZE, 3: fp.BadCause.COBS, 4: fp.BadCause.SHORT, 5: fp.BadCause.CRC}
RECORDS = sum(len(part) for name, part in VECTORS.items() if isinstance(part, list)) + 1 + 13  # CRC, COBS lengths


def run(program: Path) -> tuple[int, str]:
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sources, in which the vectors can be broken."""
    made = tmp_path_factory.mktemp("c")
    for source in SOURCES.iterdir():
        shutil.copy(source, made)
    return made


def build(folder: Path, vectors: dict[str, Any], name: str, flags: tuple[str, ...] = ()) -> Path:
    (folder / "vectors.inc").write_text(c_vectors(vectors))
    return compile_c(folder / name, *(folder / source for source in ("test_vectors.c", *CODEC)), flags=flags)


def test_every_locked_record_passes_in_c(folder: Path) -> None:
    program = build(folder, VECTORS, "good", ("-O1", "-g"))
    assert run(program) == (0, f"{RECORDS} records good, 0 wrong\n")


def test_no_record_makes_the_codec_leave_its_memory(folder: Path) -> None:
    try:
        program = build(folder, VECTORS, "checked", ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"))
    except AssertionError as error:
        pytest.skip(f"this compiler has no sanitizers: {str(error).splitlines()[0]}")
    assert run(program)[0] == 0


def broken(part: str, number: int, key: str) -> dict[str, Any]:
    """Return the vectors with one hex digit of one record changed."""
    vectors = copy.deepcopy(VECTORS)
    text = vectors[part][number][key]
    place = len(text) // 2
    vectors[part][number][key] = text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :]
    return vectors


@pytest.mark.parametrize(
    ("part", "number", "key"),
    [
        ("frames", 4, "wire"),
        pytest.param("frames", 4, "payload", marks=pytest.mark.long),
        pytest.param("images", 0, "bytes", marks=pytest.mark.long),
    ],
)
def test_a_deliberately_broken_record_is_found_in_both_languages(
    folder: Path, part: str, number: int, key: str
) -> None:
    vectors, name = broken(part, number, key), VECTORS[part][number]["name"]
    code, said = run(build(folder, vectors, f"broken_{part}_{key}"))
    assert code == 1
    assert said.endswith(f"{RECORDS - 1} records good, 1 wrong\n")
    assert f": {name}\n" in said
    assert {problem.partition(":")[0] for problem in all_problems(vectors)} == {name}


def test_a_wrong_field_of_a_record_is_found_in_both_languages(folder: Path) -> None:
    vectors = copy.deepcopy(VECTORS)
    (record,) = (record for record in vectors["frames"] if record["name"] == "commit request")
    record["fields"]["generation"] += 1
    code, said = run(build(folder, vectors, "broken_field"))
    assert (code, ": commit request\n" in said) == (1, True)
    assert any(problem.startswith("commit request:") for problem in all_problems(vectors))


class Decoder(ctypes.Structure):
    """``struct lum_decoder``."""

    _fields_ = (
        ("block", ctypes.POINTER(ctypes.c_uint8)),
        ("room", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("body_size", ctypes.c_size_t),
        ("skipping", ctypes.c_int),
    )


class Header(ctypes.Structure):
    """``struct lum_frame_header``."""

    _fields_ = (
        *((name, ctypes.c_uint8) for name in ("kind_version", "flags", "command", "status")),
        ("seq", ctypes.c_uint16),
        ("session", ctypes.c_uint16),
    )


@pytest.fixture(scope="module")
def codec(folder: Path) -> ctypes.CDLL:
    """The codec as a library in this process."""
    made = compile_c(folder / "codec.so", *(folder / source for source in CODEC), flags=("-shared", "-fPIC", "-O1"))
    library = ctypes.CDLL(str(made))
    for name in ("lum_cobs_encode", "lum_cobs_decode", "lum_frame_encode", "lum_decoder_push"):
        getattr(library, name).restype = ctypes.c_size_t
    library.lum_crc32.restype = ctypes.c_uint32
    return library


def decode_in_c(codec: ctypes.CDLL, mtu: int, chunks: list[bytes]) -> Iterator[bytes | fp.BadCause]:
    memory = (ctypes.c_uint8 * (mtu - 2))()
    decoder, result = Decoder(), ctypes.c_int()
    codec.lum_decoder_init(ctypes.byref(decoder), memory, ctypes.c_size_t(mtu))
    for chunk in chunks:
        rest = chunk
        while rest:
            size = ctypes.c_size_t(len(rest))
            rest = rest[codec.lum_decoder_push(ctypes.byref(decoder), rest, size, ctypes.byref(result)) :]
            if result.value == 1:
                yield bytes(memory[: decoder.body_size])
            elif result.value:
                yield RESULTS[result.value]


good = st.builds(
    lambda payload, seq: fp.encode_frame(fp.Frame(0, 1, seq, payload=payload)),
    st.one_of(st.binary(max_size=40), st.integers(0, 300).map(bytes), st.integers(0, 600).map(lambda n: b"\1" * n)),
    st.integers(0, 0xFFFF),
)


@examples(150)
@given(data=st.data())
def test_any_stream_in_any_chunks_means_the_same_in_c_and_python(codec: ctypes.CDLL, data: st.DataObject) -> None:
    stream = bytearray(b"".join(data.draw(st.lists(st.one_of(good, st.binary(max_size=30)), max_size=5))))
    if stream and data.draw(st.booleans()):
        stream[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [bytes(stream[a:b]) for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = [
        item.cause if isinstance(item, fp.BadFrame) else item.header_bytes() + item.payload
        for item in fp.Decoder(300).feed(bytes(stream))
    ]
    assert list(decode_in_c(codec, 300, chunks)) == expected


runs = st.sampled_from((0, 1, 252, 253, 254, 255, 256, 507, 508, 509, 510, 762))


@examples(150)
@given(parts=st.lists(st.one_of(st.binary(max_size=20), runs.map(bytes), runs.map(lambda n: b"\7" * n)), max_size=4))
def test_cobs_in_c_gives_the_bytes_of_the_cobs_package(codec: ctypes.CDLL, parts: list[bytes]) -> None:
    content = b"".join(parts)
    block = (ctypes.c_uint8 * (len(content) + len(content) // 254 + 1))()
    size = codec.lum_cobs_encode(content, ctypes.c_size_t(len(content)), block)
    assert bytes(block[:size]) == cobs.encode(content)
    assert codec.lum_cobs_decode(block, ctypes.c_size_t(size)) == len(content)
    assert bytes(block[: len(content)]) == content


@given(frame=good, capacity=st.integers(0, 700))
def test_a_frame_in_c_is_the_frame_in_python_and_never_exceeds_its_room(
    codec: ctypes.CDLL, frame: bytes, capacity: int
) -> None:
    (made,) = fp.Decoder(4096).feed(frame)
    assert isinstance(made, fp.Frame)
    header = Header(made.version << 4 | made.kind, made.flags, made.command, made.status, made.seq, made.session)
    wire = (ctypes.c_uint8 * (capacity + 1))(*[0xA5] * (capacity + 1))
    sizes = ctypes.c_size_t(len(made.payload)), wire, ctypes.c_size_t(capacity)
    size = codec.lum_frame_encode(ctypes.byref(header), made.payload, *sizes)
    assert size == (len(frame) if fp.wire_bound(len(made.payload)) <= capacity else 0)
    assert bytes(wire[:size]) == frame[:size]
    assert wire[capacity] == 0xA5


class Image(ctypes.Structure):
    """``struct lum_image``."""

    _fields_ = (
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("n_dac", ctypes.c_uint16),
        ("n_adc", ctypes.c_uint16),
    )


class Fault(ctypes.Structure):
    """``struct lum_image_fault``."""

    _fields_ = (
        ("channel", ctypes.c_uint16),
        ("index", ctypes.c_uint16),
        ("value", ctypes.c_int32),
        ("limit", ctypes.c_int32),
    )


seeds = st.sampled_from([bytes.fromhex(record["bytes"]) for record in VECTORS["images"] + VECTORS["bad_images"]])


@examples(250)
@given(seed=seeds, data=st.data())
def test_a_damaged_image_gets_the_same_answer_in_c_and_python(
    codec: ctypes.CDLL, seed: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(seed)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    image = bytes(damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged)
    n_dac, n_adc = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 6))
    fault = Fault()
    status = codec.lum_image_check(ctypes.byref(Image(image, len(image), n_dac, n_adc)), ctypes.byref(fault))
    try:
        fp.SweepImage.decode(image, n_dac, n_adc)
        expected = None
    except (fp.ImageError, fp.ChannelError) as error:
        expected = fp.image_refusal(error)
    if expected is None:
        assert status == fp.Status.OK
        return
    none = 0xFFFF
    channel = none if expected.channel is None else expected.channel
    index = none if expected.index is None else expected.index
    found = (status, fault.channel, fault.index, fault.value, fault.limit)
    assert found == (expected.status, channel, index, expected.value, expected.limit)
