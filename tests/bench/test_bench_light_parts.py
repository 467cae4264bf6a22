"""A bench file with everything that stands in fibres, emulated and used through its drivers."""

from __future__ import annotations

import pytest

from lumion_hw import Bench
from lumion_hw.errors import ConfigError, OutOfRangeError
from lumion_hw.interfaces import RangeState
from lumion_hw.quantities import w_from_dbm

FILE = """
version: 1
name: parts
devices:
  las: {kind: keysight-laser, pin: "1234"}
  pm: {kind: keysight-n77xx}
  att: {kind: keysight-n776x}
  oz: {kind: oz-da100}
  sw: {kind: polatis}
  amp: {kind: amonics-aedfa}
  osa: {kind: yokogawa-aq6370}
wiring:
  fibres:
    - laser: las
      loss_db: 0.5
      through: [{device: att, channel: 2}, {device: amp}, {device: sw, enters: 1, leaves: 17}, {device: oz}]
      taps: [{meter: pm, channel: 1, fraction: 0.5}, {meter: osa, fraction: 0.5}]
    - laser: las
      through: [{device: att, channel: 3}, {device: sw, enters: 1, leaves: 18}]
      taps: [{meter: pm, channel: 2, fraction: 1.0}]
"""


@pytest.fixture
def bench(tmp_path):
    path = tmp_path / "parts.yaml"
    path.write_text(FILE)
    with Bench.emulate(path, seed=1) as opened:
        laser = opened.lasers["las"]
        laser.set_power_dbm(0.0)
        laser.enable()
        laser.wait_ready(30.0)
        yield opened


def read_w(bench: Bench, channel: int) -> float:
    return bench.meters["pm"].read(channel).power_w


def is_dark(bench: Bench, channel: int) -> bool:
    """Return whether a channel reads nothing, or noise of less than -50 dBm."""
    reading = bench.meters["pm"].read(channel)
    return reading.state is RangeState.UNDER or abs(reading.power_w) < 1e-8


def test_light_passes_what_the_devices_let_through(bench) -> None:
    for channel, attenuation_db in ((2, 10.0), (3, 7.0)):
        bench.attenuators["att"].enable(channel)
        bench.attenuators["att"].set_attenuation_db(channel, attenuation_db)
    bench.attenuators["oz"].set_attenuation_db(1, 10.0)
    amplifier, switch = bench.amplifiers["amp"], bench.switches["sw"]
    switch.set_connections({1: 18})
    # 0 dBm, 7 dB and 2.2 dB of insertion loss, 1 dB of the switch; half a decibel of error of laser and meter.
    assert read_w(bench, 2) == pytest.approx(w_from_dbm(-7.0 - 2.2 - 1.0), rel=0.1)
    assert is_dark(bench, 1)
    switch.set_connections({1: 17})
    amplifier.hold_power_dbm(10.0)
    amplifier.enable()
    state = amplifier.wait_ready(10.0)
    assert state.output_power_dbm == pytest.approx(10.0, abs=0.1)
    assert state.input_power_dbm == pytest.approx(-12.2, abs=0.5)
    # Noise included, 10 dBm leave it: 1 dB of the switch, 1.2 and 10 dB of the OZ, half a decibel of fibre, a half.
    assert read_w(bench, 1) == pytest.approx(0.5 * w_from_dbm(10.0 - 1.0 - 1.2 - 10.0 - 0.5), rel=0.1)
    assert is_dark(bench, 2)


def test_the_analyser_shows_carrier_and_noise_of_the_amplifier(bench) -> None:
    bench.attenuators["att"].enable(2)
    bench.attenuators["att"].set_attenuation_db(2, 10.0)
    bench.switches["sw"].set_connections({1: 17})
    bench.amplifiers["amp"].hold_power_dbm(10.0)
    bench.amplifiers["amp"].enable()
    bench.amplifiers["amp"].wait_ready(10.0)
    analyzer = bench.spectrum_analyzers["osa"]
    analyzer.set_span_nm(1545.0, 1555.0)
    analyzer.set_resolution_nm(0.1)
    spectrum = analyzer.sweep(60.0)
    carrier = spectrum.power_dbm.argmax()
    assert spectrum.wavelength_nm[carrier] == pytest.approx(1550.0, abs=0.1)
    noise_dbm = sorted(spectrum.power_dbm)[len(spectrum.power_dbm) // 4]
    # -12.2 dBm into 5 dB: 58 - 12.2 - 5 in 12.5 GHz, and the Gaussian of 0.1 nm is 0.26 dB wider.
    assert spectrum.power_dbm[carrier] - noise_dbm == pytest.approx(58.0 - 12.2 - 5.0 - 0.26, abs=1.0)


READ_BY_METERS = """
version: 1
name: read-by-meters
devices:
  mesh0: {kind: qontrol-q8, modules: [Q8iv-0001, Q8iv-0002, Q8iv-0003, Q8iv-0004],
          heater_max_ma: 2.5, heater_ohm: 1000.0, total_power_mw: 500.0}
  las: {kind: itla-laser}
  pm: {kind: keysight-n77xx, averaging_s: 0.01}
  att: {kind: keysight-n776x}
  sw: {kind: polatis}
mesh: {controller: mesh0, columns: [2]}
wiring:
  inputs: [{laser: las, port: 5}]
  outputs:
    - {port: 13, through: [{device: att, channel: 1}, {device: sw, enters: 1, leaves: 17}],
       tap: {meter: pm, channel: 1, fraction: 1.0}}
emulation: {passive_phases: zero}
"""


def test_monitors_behind_parts_tell_the_light_at_the_facet(tmp_path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(READ_BY_METERS)
    with Bench.emulate(path, seed=1) as bench:
        attenuator, switch = bench.attenuators["att"], bench.switches["sw"]
        bench.lasers["las"].enable()
        bench.lasers["las"].wait_ready(60.0)
        with pytest.raises(OutOfRangeError, match="blocks the light from port 13 to its meter pm") as caught:
            bench.mesh.monitors_ma()
        assert caught.value.device == "att"
        attenuator.enable(1)
        with pytest.raises(OutOfRangeError) as caught:
            bench.mesh.monitors_ma()
        assert caught.value.device == "sw"
        switch.set_connections({1: 17})
        seen_ma = []
        for attenuation_db in (0.0, 10.0):
            attenuator.set_attenuation_db(1, attenuation_db)
            seen_ma += bench.mesh.monitors_ma().tolist()
        # At the facet: what the meter reads, the parts' 2.2 and 1.0 dB of insertion loss, and what is set.
        assert seen_ma[1] == pytest.approx(1e3 * read_w(bench, 1) * 10.0 ** ((10.0 + 2.2 + 1.0) / 10.0), rel=0.01)
        assert seen_ma[0] == pytest.approx(seen_ma[1], rel=0.02)


def test_a_part_that_is_not_open_is_no_part_that_takes_nothing(tmp_path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(READ_BY_METERS)
    with (
        Bench.emulate(path, seed=1, only=["mesh0", "pm", "sw"]) as bench,
        pytest.raises(ConfigError, match="in the light path but was not opened"),
    ):
        bench.mesh.monitors_ma()
