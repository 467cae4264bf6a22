"""Arithmetic of the protocol against the worked numbers of section 19 and sums done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp

u32 = st.integers(0, 0xFFFFFFFF)
TABLE = np.array([0x1000, 0, 0x8000, 0xFFFF], dtype=np.uint16)  # section 19
OHM = np.full(4, 1000)


def test_the_worked_table_has_the_crc_of_the_specification() -> None:
    assert fp.table_crc32(TABLE) == fp.table_crc32([0x1000, 0, 0x8000, 0xFFFF]) == 0x5DEF4AD8


def test_the_worked_configuration_has_the_crc_of_the_specification() -> None:
    block = fp.ConfigGlobalRequest(0, 2000, 0, 400, fault_enable=1, temp_trip=8500)
    limits = np.array([(c, 1000, 0) for c in (65535, 65535, 52428, 65535)], dtype=fp.LIMIT_DTYPE)
    assert fp.config_crc32(block, limits) == 0xA3FD60C2


def test_the_worked_table_has_the_computed_power_of_the_specification() -> None:
    per_channel = fp.channel_power_uw(TABLE, OHM, 12_000_000, fp.Drive.VOLTAGE)
    assert per_channel.tolist() == [562, 0, 36_001, 144_000]
    assert fp.computed_power_uw(TABLE, OHM, 12_000_000, fp.Drive.VOLTAGE) == 180_563


def test_current_drive_computes_r_i_squared_rounded_down_twice() -> None:
    # 32768 × 20000 µA // 65535 = 10000 µA; (10 mA)² × 1 kΩ = 100 mW. 20 mA: 400 mW. 1 × 20000 // 65535 = 0 µA.
    codes = np.array([32768, 65535, 1])
    assert fp.channel_power_uw(codes, OHM[:3], 20_000, fp.Drive.CURRENT).tolist() == [100_000, 400_000, 0]


@given(
    st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 65535)), min_size=1, max_size=8),
    st.integers(1, 100_000_000),
    st.sampled_from(fp.Drive),
)
def test_computed_power_is_exact_in_integers(rows: list[tuple[int, int]], full_scale: int, drive: fp.Drive) -> None:
    def power(code: int, ohm: int) -> int:
        output = code * full_scale // 65535
        if drive is fp.Drive.CURRENT:
            return output * output * ohm // 1_000_000
        return output * output // (ohm * 1_000_000) if ohm else 0

    codes, ohms = np.array(rows).T
    assert fp.computed_power_uw(codes, ohms, full_scale, drive) == sum(power(*row) for row in rows)


def test_a_channel_that_is_not_fitted_contributes_nothing() -> None:
    for drive in fp.Drive:
        assert fp.computed_power_uw(np.array([65535]), np.array([0]), 12_000_000, drive) == 0


@pytest.mark.parametrize(
    ("a", "b", "newer"),
    [(1, 0, True), (0, 0, False), (0, 1, False), (0, 0xFFFFFFFF, True), (1 << 31, 0, False), ((1 << 31) - 1, 0, True)],
)
def test_newer_counts_around_the_wrap(a: int, b: int, newer: bool) -> None:
    assert fp.is_newer(a, b) is newer


@given(u32, u32)
def test_no_two_numbers_are_newer_than_each_other(a: int, b: int) -> None:
    assert not (fp.is_newer(a, b) and fp.is_newer(b, a))


@given(u32)
def test_the_next_generation_is_newer_and_never_zero(generation: int) -> None:
    following = fp.next_generation(generation)
    assert following != 0
    assert fp.is_newer(following, generation)


def test_the_next_generation_skips_zero() -> None:
    assert fp.next_generation(0xFFFFFFFF) == 1


def test_currents_become_the_nearest_codes() -> None:
    # One step of 20 mA / 65535 is 0.000305 mA: 10 mA is code 32767.5, a tie that goes to the even 32768.
    codes = fp.code_from_output(np.array([0.0, 10.0, 20.0, 0.0004, 0.0005]), 20.0)
    assert codes.tolist() == [0, 32768, 65535, 1, 2]
    assert codes.dtype == np.uint16


@pytest.mark.parametrize("wrong", [-0.001, 20.001, math.nan, math.inf])
def test_an_output_that_has_no_code_is_refused_with_its_channel(wrong: float) -> None:
    with pytest.raises(ValueError, match="channel 1"):
        fp.code_from_output(np.array([1.0, wrong]), 20.0)


@given(st.integers(0, 65535))
def test_every_code_survives_the_way_to_an_output_and_back(code: int) -> None:
    assert fp.code_from_output(fp.output_from_code(np.array([code]), 20.0), 20.0).tolist() == [code]


def test_a_saturated_monitor_has_no_value() -> None:
    values, saturated = fp.monitor_from_code(np.array([0, 13107, 65534, 65535], np.uint16), 2.0)
    assert saturated.tolist() == [False, False, False, True]
    assert values[:3].tolist() == pytest.approx([0.0, 0.4, 2.0 * 65534 / 65535])
    assert math.isnan(values[3])


def test_converters_drive_the_high_bits_and_monitors_fill_the_scale() -> None:
    assert fp.native_code(np.array([0xFFFF, 0x1234]), 12).tolist() == [0xFFF, 0x123]
    assert fp.native_code(np.array([0x1234]), 16).tolist() == [0x1234]
    assert fp.monitor_code(np.array([0, 2048, 4095]), 12).tolist() == [0, 2048 * 65535 // 4095, 65535]
