"""A host for emulated CMIS modules: registers by field name over raw I2C, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.cmis import CmisModule, ReceivedLight
from lumion_hw.emulator.transponders.cmis.optics import LaunchedLight
from lumion_hw.standards.cmis import FIELDS, Value, decode, encode, raw

GOOD_LIGHT = ReceivedLight(total_power_dbm=-8.0, signal_power_dbm=-8.0, osnr_db=36.0)
MANAGEMENT_S, POWER_UP_S, INIT_S, TURN_ON_S = 0.5, 15.0, 20.0, 0.05
"""Defaults of the emulator."""


class Host:
    """One module on a bench, and a host with raw register access."""

    def __init__(
        self, profile: str = "400zr", *, start_s: float = 100.0, clock: VirtualClock | None = None, **options
    ) -> None:
        self.clock = clock or VirtualClock(start_s)
        self.light: ReceivedLight | dict[int, ReceivedLight] = ReceivedLight()
        self.sent: list[LaunchedLight] = []
        options.setdefault("seed", 1)
        self.module = CmisModule.from_profile(
            profile, clock=self.clock, optics=self._optics, emit=self.sent.append, **options
        )

    def _optics(self, lane: int, at_s: float) -> ReceivedLight:
        return self.light.get(lane, ReceivedLight()) if isinstance(self.light, dict) else self.light

    # raw access by page

    def select(self, page: int, bank: int = 0) -> int:
        """Map a page; return the value of PageSelect afterwards."""
        self.module.write(126, bytes([bank, page]))
        return self.module.read(127, 1)[0]

    def read(self, page: int | None, byte: int, length: int = 1) -> bytes:
        if page is not None:
            self.select(page)
        return self.module.read(byte, length)

    def write(self, page: int | None, byte: int, *data: int) -> None:
        if page is not None:
            self.select(page)
        self.module.write(byte, bytes(data))

    # by field

    def get(self, name: str, index: int | None = None) -> Value:
        field = FIELDS[name]
        span = field.span(index)
        return decode(field, self.read(field.page, span.start, len(span)), index)

    def raw(self, name: str, index: int | None = None) -> int:
        field = FIELDS[name]
        span = field.span(index)
        return raw(field, self.read(field.page, span.start, len(span)), index)

    def lanes(self, name: str) -> int:
        """Return the byte of a field with one bit per lane."""
        field = FIELDS[name]
        return self.read(field.page, field.byte)[0]

    def put(self, name: str, value: Value, index: int | None = None) -> None:
        field = FIELDS[name]
        span = field.span(index)
        current = self.read(field.page, span.start, 1) if field.bits is not None else None
        self.write(field.page, span.start, *encode(field, value, index, current=current))

    def put_lanes(self, name: str, mask: int) -> None:
        field = FIELDS[name]
        self.write(field.page, field.byte, mask)

    # flows

    def states(self) -> list[int]:
        """Return the data path states of the eight host lanes."""
        data = self.read(0x11, 128, 4)
        return [data[lane // 2] >> 4 * (lane % 2) & 0xF for lane in range(8)]

    def statuses(self) -> list[int]:
        """Return the ConfigStatus of the eight host lanes."""
        data = self.read(0x11, 202, 4)
        return [data[lane // 2] >> 4 * (lane % 2) & 0xF for lane in range(8)]

    def wait(self, seconds: float) -> None:
        """Let time pass, and let the module measure the light in that time."""
        self.clock.sleep(seconds)
        self.module.advance()

    def until(self, condition: Callable[[], bool], limit_s: float, step_s: float = 0.01) -> float:
        """Poll; return the duration."""
        start = self.clock.now()
        while not condition():
            assert self.clock.now() - start < limit_s, "it never happened"
            self.clock.sleep(step_s)
        return self.clock.now() - start

    def power_up(self) -> None:
        """Go from power-on, or low power, to ModuleReady, with data paths held deactivated and Tx off."""
        self.wait(0.6)
        self.write(0x10, 128, 0xFF)
        self.write(0x10, 130, 0xFF)
        self.write(None, 26, 0x00)
        self.until(lambda: self.raw("module_state") == 3, 100.0, 0.5)

    def stage(self, app_sel: int, first_lane: int, count: int, *, explicit: bool = False) -> int:
        """Stage a data path; return its host-lane mask."""
        value = app_sel << 4 | (first_lane - 1) << 1 | explicit
        for lane in range(first_lane, first_lane + count):
            self.write(0x10, 144 + lane, value)
        return ((1 << count) - 1) << (first_lane - 1)

    def apply(self, mask: int, *, immediate: bool = False) -> list[int]:
        """Apply and wait; return the ConfigStatus of all lanes."""
        self.write(0x10, 144 if immediate else 143, mask)
        self.wait(0.05)
        return self.statuses()

    def bring_up(self) -> None:
        """Go to DPActivated with application 1."""
        self.power_up()
        self.write(0x10, 128, 0x00)
        self.write(0x10, 130, 0x00)
        self.until(lambda: self.states()[0] == 4, 100.0, 0.5)


def ready(profile: str = "400zr", **options) -> Host:
    """Return a host whose module is ready, with data paths held deactivated."""
    host = Host(profile, **options)
    host.power_up()
    return host


def lit(profile: str = "400zr", *, light: ReceivedLight | dict[int, ReceivedLight] = GOOD_LIGHT, **options) -> Host:
    """Return a host whose module is activated and has received light for 2 s."""
    host = Host(profile, **options)
    host.light = light
    host.bring_up()
    host.wait(2.0)
    return host
