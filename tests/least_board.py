"""What the least board says of itself: it drives four heaters, and reads nothing."""

import firmware_protocol as fp

LEAST_BOARD = fp.HelloReply(
    proto=1,
    window=4,
    fw_rx_max=512,
    fw_tx_max=512,
    n_dac=4,
    n_adc=0,
    dac_bits=16,
    adc_bits=0,
    n_banks=1,
    n_streams=0,
    outputs_state=fp.OutputsState.READY,
    drive=fp.Drive.CURRENT,
    dac_full_scale=20_000,
    adc_full_scale=0,
    tick_us=1000,
    t_cmd_ms=1,
    t_slow_ms=1,
    latch_skew_us=0,
    adc_scan_us=0,
    features=0,
    schema_crc32=0,
    boot_id=1,
    uptime_ms=0,
    faults=0,
    active_generation=0,
    config_crc32=0,
    sweep_mem=0,
    sweep_ring=0,
    serial="FP-0007",
    fw_version="1.0.0",
)
"""Tests replace what they are about."""
