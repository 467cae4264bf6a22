"""Properties of an emulated mesh controller: sizes, resolutions, times and features."""

from __future__ import annotations

from dataclasses import dataclass, replace

from firmware_protocol import FULL_SCALE_CODE, MIN_MTU, Drive, Feature
from lumion_hw.emulator.mesh.lumion.wires import Pacing

DEFAULT_FEATURES = sum(
    1 << feature
    for feature in (
        Feature.COMMIT_AT_TICK,
        Feature.COMMIT_TRIGGER,
        Feature.SWEEP,
        Feature.SWEEP_TRIGGER,
        Feature.EXTERNAL_LOOP,
        Feature.HW_WATCHDOG,
        Feature.CHIP_TEMPERATURE,
        Feature.SUPPLY_SENSE,
        Feature.CLEAR_ONE,
        Feature.MONITOR_WATCH,
    )
)
"""Feature bits of the default board (docs/protocol.md, section 6.4)."""


@dataclass(frozen=True)
class BoardProfile:
    """Properties of one emulated board, as in the HELLO reply (docs/protocol.md, section 6.1).

    Attributes:
        n_dac: Number of drive channels.
        n_adc: Number of monitor channels.
        dac_bits: Native resolution of the drive converters, 8 to 16.
        adc_bits: Native resolution of the monitors, 8 to 16.
        drive: Current or voltage drive.
        dac_full_scale: Output at code 65535, in uA (current drive) or uV (voltage drive).
        adc_full_scale: Photocurrent at code 65535, in nA.
        mtu: Largest frame in either direction, in bytes on the wire.
        window: Number of replies stored for repeated requests: 1, 2, 4, 8 or 16.
        n_streams: Number of telemetry streams, 0 to 14.
        sweep_mem: Memory for a sweep image (program of a sweep), in bytes.
        sweep_ring: Memory for results of a sweep, in u16 values.
        t_cmd_ms: Time from the last request byte to execution and reply, in ms.
        t_slow_ms: Time from the last request byte to the reply of commands that write flash, in ms.
        latch_skew_us: Reported time between the first and the last output change of one table, in us.
        write_us: Time to write a table to the converters before the outputs can change, in us.
        adc_scan_us: Time for one conversion of all monitor channels, in us.
        hw_code_max: Largest code that the hardware allows on any channel.
        hw_watchdog_s: Time after which a frozen processor is reset (feature HW_WATCHDOG).
        chip_temp_c: Chip temperature at power-up, in degrees C.
        pacing: Speed of the line (protocol section 15): ``none``, ``uart:<baud>``, ``ftdi:<baud>:<ms>`` or ``usb-fs``;
            ms is the latency timer of the USB bridge.
        serial: Serial number, at most 16 ASCII characters.
        fw_version: Firmware version, at most 16 ASCII characters.
    """

    n_dac: int = 144
    n_adc: int = 28
    dac_bits: int = 16
    adc_bits: int = 16
    drive: Drive = Drive.CURRENT
    dac_full_scale: int = 10_000
    adc_full_scale: int = 1_000_000
    tick_us: int = 1000
    mtu: int = 4096
    window: int = 8
    n_banks: int = 2
    n_streams: int = 4
    sweep_mem: int = 65536
    sweep_ring: int = 65536
    t_cmd_ms: int = 1
    t_slow_ms: int = 500
    latch_skew_us: int = 0
    write_us: int = 0
    adc_scan_us: int = 50
    features: int = DEFAULT_FEATURES
    hw_code_max: int = FULL_SCALE_CODE
    hw_watchdog_s: float = 0.5
    chip_temp_c: float = 25.0
    pacing: str = "none"
    serial: str = "EMU-MESH-0001"
    fw_version: str = "1.0.0"

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for values that a HELLO reply cannot represent."""
        ranges = {
            "n_dac": (1, 2000),
            "n_adc": (0, 2000),
            "dac_bits": (8, 16),
            "adc_bits": (8, 16),
            "dac_full_scale": (1, 100_000_000),
            "adc_full_scale": (1, 0xFFFFFFFF),
            "tick_us": (1, 65535),
            "mtu": (MIN_MTU, 65535),
            "n_banks": (1, 16),
            "n_streams": (0, 14),
            "sweep_mem": (0, 0xFFFFFFFF),
            "sweep_ring": (0, 0xFFFFFFFF),
            "write_us": (0, 10_000_000),
            "adc_scan_us": (0, 65535),
            "features": (0, 0xFFFFFFFF),
            "t_cmd_ms": (1, 65535),
            "t_slow_ms": (1, 65535),
            "hw_code_max": (1, FULL_SCALE_CODE),
        }
        for name, (low, high) in ranges.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {low} to {high}")
        if self.window not in (1, 2, 4, 8, 16):
            raise ValueError(f"window is {self.window}; it must be 1, 2, 4, 8 or 16")
        Pacing.parse(self.pacing)
        for name in ("serial", "fw_version"):
            if len(getattr(self, name).encode()) > 16:
                raise ValueError(f"{name} is longer than 16 bytes")

    @property
    def tick_s(self) -> float:
        """Length of one tick in seconds."""
        return self.tick_us * 1e-6

    def has(self, feature: Feature) -> bool:
        """Return whether the board has a feature bit."""
        return bool(self.features >> feature & 1)


PRESETS = {
    "tiny": BoardProfile(n_dac=4, n_adc=4),
    "mesh144": BoardProfile(n_dac=144, n_adc=64),
    "mesh304": BoardProfile(n_dac=304, n_adc=40),
    "large": BoardProfile(n_dac=2000, n_adc=256),
}
"""Properties of boards of several sizes, by preset name."""

_UART_MTU = 512


def preset(name: str, pacing: str = "none") -> BoardProfile:
    """Return the properties of a preset board. The largest frame is 512 bytes on a UART, else 4096 (section 2.4).

    Raises ``KeyError`` if ``name`` is not in :data:`PRESETS`, ``ConfigError`` for an unknown ``pacing``.
    """
    profile = PRESETS[name]
    mtu = _UART_MTU if Pacing.parse(pacing).is_uart else profile.mtu
    return replace(profile, mtu=mtu, pacing=pacing)
