"""COBS: the canonical form of section 2.2, equal to the `cobs` package, both legal forms accepted."""

from __future__ import annotations

import json
from importlib import resources

import pytest
from cobs import cobs
from hypothesis import example, given
from hypothesis import strategies as st

from firmware_protocol import stuffing

LENGTHS = json.loads(resources.files("firmware_protocol").joinpath("vectors.json").read_text())["cobs_lengths"]
PATTERNS = {
    "01": lambda n: b"\1" * n,
    "01..00": lambda n: b"\1" * (n - 1) + b"\0",
    "00 01..": lambda n: b"\0" + b"\1" * (n - 1),
    "00": bytes,
}
BOUNDARIES = (0, 1, 2, 252, 253, 254, 255, 256, 507, 508, 509, 510, 762, 763)
# Runs of zeros and non-zeros around the group length of 254, which random bytes would never hit.
runs = st.lists(
    st.one_of(
        st.sampled_from(BOUNDARIES).map(bytes), st.sampled_from(BOUNDARIES).map(lambda n: b"\7" * n), st.binary()
    ),
    max_size=6,
).map(b"".join)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("column", range(len(LENGTHS["content"])))
def test_encoded_lengths_are_those_of_the_specification(pattern: str, column: int) -> None:
    content = PATTERNS[pattern](LENGTHS["content"][column])
    assert len(stuffing.encode_plain(content)) == LENGTHS[pattern][column]
    assert len(stuffing.cobs_encode(content)) == LENGTHS[pattern][column]


@given(runs)
@example(b"")
def test_plain_python_gives_the_bytes_of_the_cobs_package(content: bytes) -> None:
    encoded = stuffing.encode_plain(content)
    assert encoded == cobs.encode(content) == stuffing.cobs_encode(content)
    assert b"\0" not in encoded
    assert stuffing.decode_plain(encoded) == content == stuffing.cobs_decode(encoded)
    assert len(encoded) <= max(len(content), 1) + -(-len(content) // 254)  # bound of 2.2; empty content is never sent


@pytest.mark.parametrize("length", BOUNDARIES)
@pytest.mark.parametrize("byte", [b"\0", b"\1", b"\xff"])
def test_uniform_contents_of_critical_lengths_survive(length: int, byte: bytes) -> None:
    content = byte * length
    assert stuffing.encode_plain(content) == cobs.encode(content)
    assert stuffing.decode_plain(cobs.encode(content)) == content


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_the_longer_legal_form_is_accepted(groups: int) -> None:
    content = bytes([5]) * 254 * groups
    longer = stuffing.encode_plain(content) + b"\x01"
    assert stuffing.decode_plain(longer) == content == stuffing.cobs_decode(longer)


@pytest.mark.parametrize("block", [b"\x02", b"\xff\x01", b"\x05abc", b"\x02\x00", b"\x00\x01"])
def test_a_code_byte_that_does_not_fit_is_an_error_of_one_kind(block: bytes) -> None:
    with pytest.raises(stuffing.StuffingError):
        stuffing.decode_plain(block)
    with pytest.raises(stuffing.StuffingError):
        stuffing.cobs_decode(block)


@given(st.binary(max_size=600).map(lambda data: data.replace(b"\0", b"\1")))
def test_plain_python_and_the_cobs_package_agree_on_every_block(block: bytes) -> None:
    try:
        expected: bytes | None = cobs.decode(block)
    except cobs.DecodeError:
        expected = None
    if expected is None:
        with pytest.raises(stuffing.StuffingError):
            stuffing.decode_plain(block)
    else:
        assert stuffing.decode_plain(block) == expected
