"""COBS: the canonical form of section 2.2, equal to the `cobs` package, both legal forms accepted."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import types
from importlib import resources

import pytest
from cobs import cobs
from hypothesis import example, given, strategies as st

from firmware_protocol import stuffing
from tests.every import for_every

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
    assert stuffing.decode_plain(encoded) == content == stuffing.decode_raw(encoded)
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
    assert stuffing.decode_plain(longer) == content == stuffing.decode_raw(longer)


@pytest.mark.parametrize("block", [b"\x02", b"\xff\x01", b"\x05abc", b"\x02\x00", b"\x00\x01"])
def test_a_code_byte_that_does_not_fit_is_an_error_of_one_kind(block: bytes) -> None:
    with pytest.raises(stuffing.StuffingError):
        stuffing.decode_plain(block)
    with pytest.raises(stuffing.DecodeFailure):
        stuffing.decode_raw(block)


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


LENGTHS_OF_RUNS = (253, 254, 255, 508, 509)
BEFORE = (b"", b"\0", b"\7\0", b"\7" * 253 + b"\0", b"\7" * 254 + b"\0")
AFTER = (b"", b"\0", b"\0\0\0\0\0", b"\0\7", b"\0" + b"\7" * 254)


@for_every(list(itertools.product(LENGTHS_OF_RUNS, BEFORE, AFTER)))
def test_runs_around_the_group_length_are_those_of_the_cobs_package(case: tuple[int, bytes, bytes]) -> None:
    length, before, after = case
    content = before + b"\xff" * length + after
    assert stuffing.encode_plain(content) == cobs.encode(content)
    assert stuffing.decode_plain(cobs.encode(content)) == content


def test_without_the_cobs_package_or_its_extension_the_plain_functions_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert stuffing.cobs_encode is cobs.encode
    without_extension = types.SimpleNamespace(
        encode=lambda content: b"", decode=lambda block: b"", DecodeError=ValueError
    )
    for package in (None, without_extension):
        monkeypatch.setitem(sys.modules, "cobs.cobs", package)  # type: ignore[arg-type]
        fresh = importlib.util.module_from_spec(stuffing.__spec__)
        stuffing.__spec__.loader.exec_module(fresh)  # type: ignore[union-attr]
        assert fresh.cobs_encode is fresh.encode_plain
        assert fresh.decode_raw is fresh.decode_plain
        with pytest.raises(fresh.StuffingError):
            fresh.decode_raw(b"\x05abc")
