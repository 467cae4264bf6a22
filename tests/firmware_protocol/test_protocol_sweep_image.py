"""The sweep image: sizes of the specification, every point as it was meant, every wrong byte refused (section 10)."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp

u16, u32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
N_DAC, N_ADC = 6, 9
tables = st.lists(u16, min_size=N_DAC, max_size=N_DAC)
points = st.builds(
    fp.SweepPoint,
    changes=st.lists(st.tuples(st.integers(0, N_DAC - 1), u16), max_size=5),
    table=st.none() | tables,
    timing=st.none() | st.builds(fp.PointTiming, settle_us=u32, dwell_us=u32),
)
images = st.builds(
    fp.SweepImage,
    points=st.lists(points, min_size=1, max_size=6).map(tuple),
    n_avg=st.integers(1, 4096),
    settle_us=u32,
    dwell_us=u32,
    end_action=st.sampled_from(fp.EndAction),
    trigger=st.sampled_from(fp.SweepTrigger),
    mask=st.just(b"") | st.sets(st.integers(0, N_ADC - 1), min_size=1).map(lambda c: fp.mask_from_channels(c, N_ADC)),
    start_table=st.none() | tables,
)


def scan(count: int, n_dac: int) -> list[np.ndarray]:
    """Tables of a scan of channel 0 over a base of ones."""
    scanned = [np.ones(n_dac, dtype=np.uint16) for _ in range(count)]
    for step, table in enumerate(scanned):
        table[0] = 2 + step
    return scanned


def wire_bytes(image: bytes, mtu: int) -> int:
    return sum(fp.wire_bound(len(request.encode())) for request in fp.load_requests(1, image, mtu))


def test_a_scan_of_240_points_of_one_actuator_takes_1460_bytes() -> None:
    base = np.ones(144, dtype=np.uint16)
    assert len(fp.SweepImage(fp.delta_points(scan(240, 144), base)).encode()) == 1460


def test_loading_256_points_of_144_channels_costs_the_bytes_of_the_specification() -> None:
    base = np.ones(144, dtype=np.uint16)
    single = fp.SweepImage(fp.delta_points(scan(256, 144), base)).encode()
    whole = fp.SweepImage(tuple(fp.SweepPoint(table=table) for table in scan(256, 144))).encode()
    assert wire_bytes(single, 512) == 1699
    assert wire_bytes(whole, 512) == 79_911


@given(images)
def test_what_is_encoded_is_decoded(image: fp.SweepImage) -> None:
    data = image.encode()
    back = fp.SweepImage.decode(data, N_DAC, N_ADC)
    assert back == image
    assert hash(back) == hash(image)
    assert back.encode() == data
    assert back.crc32() == zlib.crc32(data)
    assert [back.timing(i) for i in range(len(back.points))] == [image.timing(i) for i in range(len(image.points))]


@given(images, st.data())
def test_an_image_cut_anywhere_or_grown_at_its_end_is_a_bad_value(image: fp.SweepImage, data: st.DataObject) -> None:
    whole = image.encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    for wrong in (whole[:cut], whole + b"\0"):
        with pytest.raises(fp.ImageError) as caught:
            fp.SweepImage.decode(wrong, N_DAC, N_ADC)
        refusal = fp.image_refusal(caught.value)
        assert refusal.status is fp.Status.BAD_VALUE
        assert 0 <= refusal.value <= len(whole)


@given(st.binary(max_size=200), st.integers(1, 8), st.integers(0, 8))
def test_arbitrary_bytes_are_an_image_or_one_of_two_refusals(data: bytes, n_dac: int, n_adc: int) -> None:
    try:
        result = fp.SweepImage.decode(data, n_dac, n_adc).encode()
    except (fp.ImageError, fp.ChannelError) as error:
        result = fp.image_refusal(error).encode()
    assert len(result) in (len(data), 13)  # as many bytes as came (reserved bits are not kept), or an error reply


def test_points_build_on_one_another_and_every_pass_starts_anew() -> None:
    image = fp.SweepImage(
        (fp.SweepPoint([(0, 7)]), fp.SweepPoint([(1, 8), (1, 9)]), fp.SweepPoint()),  # type: ignore[arg-type]
    )
    driven = [table.tolist() for table in image.tables(np.array([1, 2, 3]))]
    assert driven == [[7, 2, 3], [7, 9, 3], [7, 9, 3]]
    assert [table.tolist() for table in image.tables(np.array([1, 2, 3]))] == driven


def test_a_start_table_takes_the_place_of_the_base() -> None:
    image = fp.SweepImage((fp.SweepPoint([(0, 7)]),), start_table=[4, 5, 6])  # type: ignore[arg-type]
    assert [table.tolist() for table in image.tables(np.array([1, 2, 3]))] == [[7, 5, 6]]


def test_tables_of_a_sweep_are_fresh_arrays() -> None:
    image = fp.SweepImage((fp.SweepPoint(), fp.SweepPoint(table=[1, 2, 3])))  # type: ignore[arg-type]
    base = np.array([1, 2, 3], dtype=np.uint16)
    for table in image.tables(base):
        table[0] = 99
    assert base[0] == 1
    assert image.points[1].table is not None
    assert image.points[1].table[0] == 1


def test_a_point_has_its_own_times_or_those_of_the_image() -> None:
    image = fp.SweepImage((fp.SweepPoint(), fp.SweepPoint(timing=fp.PointTiming(5, 6))), settle_us=1, dwell_us=2)
    assert [image.timing(0), image.timing(1)] == [fp.PointTiming(1, 2), fp.PointTiming(5, 6)]


def test_delta_points_take_the_form_with_fewer_bytes() -> None:
    base = np.zeros(8, dtype=np.uint16)
    few, many = base.copy(), np.arange(8, dtype=np.uint16)
    few[:4] = 5  # four changes are 16 bytes, as many as the table: changes
    points = fp.delta_points([few, many, many], base, [None, fp.PointTiming(1, 2), None])
    assert [point.table is None for point in points] == [True, False, True]
    assert [len(point.changes) for point in points] == [4, 0, 0]
    assert points[1].timing == fp.PointTiming(1, 2)
    assert [t.tolist() for t in fp.SweepImage(points).tables(base)] == [few.tolist(), many.tolist(), many.tolist()]


@given(st.lists(tables, min_size=1, max_size=6), tables)
def test_delta_points_drive_the_tables_they_were_made_from(wanted: list[list[int]], base: list[int]) -> None:
    image = fp.SweepImage(fp.delta_points([np.array(table) for table in wanted], np.array(base)))
    assert [table.tolist() for table in image.tables(np.array(base))] == wanted


def test_delta_points_of_the_largest_board_never_use_the_reserved_count() -> None:
    base = np.zeros(65535, dtype=np.uint16)
    wanted = base.copy()
    wanted[:32767] = 1
    (point,) = fp.delta_points([wanted], base)
    assert point.table is not None
    assert fp.SweepImage.decode(fp.SweepImage((point,)).encode(), 65535, 1).points[0].table is not None


def test_tables_of_another_size_are_no_sweep() -> None:
    with pytest.raises(ValueError, match="table 0 has 2 codes, the base has 3"):
        fp.delta_points([np.array([1, 2])], np.array([1, 2, 3]))
    image = fp.SweepImage((fp.SweepPoint(table=[1, 2]), fp.SweepPoint(table=[1])))  # type: ignore[arg-type]
    with pytest.raises(fp.ImageError, match=r"offset 26 \(point 1\): one table has 1 codes, others have 2"):
        image.encode()


@pytest.mark.parametrize(
    ("image", "offset"),
    [
        (fp.SweepImage(()), 4),
        (fp.SweepImage((fp.SweepPoint(),), n_avg=0), 2),
        (fp.SweepImage((fp.SweepPoint(),), n_avg=4097), 2),
        (fp.SweepImage((fp.SweepPoint(),), settle_us=1 << 32), 8),
        (fp.SweepImage((fp.SweepPoint(),), dwell_us=-1), 12),
        (fp.SweepImage((fp.SweepPoint(),), mask=bytes(65536)), 18),
    ],
)
def test_an_image_its_fields_cannot_hold_is_not_encoded(image: fp.SweepImage, offset: int) -> None:
    with pytest.raises(fp.ImageError) as caught:
        image.encode()
    assert caught.value.offset == offset


def test_times_and_counts_beyond_their_fields_are_not_encoded() -> None:
    with pytest.raises(fp.ImageError, match="32 bits"):
        fp.SweepPoint(timing=fp.PointTiming(1 << 32, 0)).encode()
    with pytest.raises(fp.ImageError, match="at most 32766"):
        fp.SweepPoint(np.zeros(32767, fp.PAIR_DTYPE)).encode()
    with pytest.raises(fp.FieldError, match="changes"):
        fp.SweepPoint([(0, 65536)])  # type: ignore[arg-type]
    with pytest.raises(fp.FieldError, match="codes"):
        fp.SweepPoint(table=[-1])  # type: ignore[arg-type]


def test_a_huge_number_of_points_in_few_bytes_ends_at_the_first_missing_one() -> None:
    data = bytearray(fp.SweepImage((fp.SweepPoint(),)).encode())
    data[4:8] = b"\xff\xff\xff\xff"
    with pytest.raises(fp.ImageError, match="a point needs 2 bytes, but 0 are left"):
        fp.SweepImage.decode(bytes(data), 4, 4)


def test_reserved_bits_of_an_image_are_ignored() -> None:
    data = bytearray(fp.SweepImage((fp.SweepPoint(),)).encode())
    data[1] = 0xFE
    assert fp.SweepImage.decode(bytes(data), 4, 4).start_table is None


def test_a_board_without_monitors_has_nothing_to_sweep() -> None:
    with pytest.raises(fp.ImageError, match="selects no monitor"):
        fp.SweepImage.decode(fp.SweepImage((fp.SweepPoint(),)).encode(), 4, 0)


def test_the_pieces_of_an_image_fit_the_mtu_and_cover_it_in_order() -> None:
    image = bytes(range(256)) * 4
    pieces = list(fp.load_requests(7, image, 256))
    assert [piece.offset for piece in pieces] == [0, 221, 442, 663, 884]
    assert b"".join(piece.data for piece in pieces) == image
    assert {(piece.sweep_id, piece.total, piece.image_crc32) for piece in pieces} == {(7, 1024, zlib.crc32(image))}
    for piece in pieces:
        fp.encode_frame(fp.Frame(fp.Kind.REQ, piece.command, payload=piece.encode()), mtu=256)


def test_an_image_that_is_no_bytes_cannot_be_loaded() -> None:
    with pytest.raises(fp.FieldError, match="int instead of bytes"):
        fp.SweepLoadRequest(1, 4, 0, 0, 4)  # type: ignore[arg-type]
