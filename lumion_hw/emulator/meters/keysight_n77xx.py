"""Emulated Keysight N7744A/45A/44C/45C multiport optical power meter.

Command language: Keysight N774xC Programming Guide. Ranges end at -70 and +10 dBm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.meters.keysight_functions import MeterTraits
from lumion_hw.emulator.meters.keysight_meter import EmulatedKeysightMeter
from lumion_hw.emulator.meters.photodiode_head import EmulatedHead
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.scpi import Call, Profile, Reply, ScpiCommand, SuffixRange, query
from lumion_hw.emulator.scpi.formats import keysight_float, keysight_float32
from lumion_hw.emulator.scpi.keysight_slots import self_as_modules, slot_commands
from lumion_hw.errors import ConfigError


class EmulatedKeysightN77xx(EmulatedKeysightMeter):
    """Emulated Keysight N77xx multiport power meter.

    Args:
        power_w: Returns the present optical power at a channel (1..``n_ports``), in watts.
        model: ``N7744A``, ``N7745A``, ``N7744C`` or ``N7745C``. Only the C models have all ``:ALL:CSV?`` queries.
        n_ports: Number of channels, 1 to 14, else ``ConfigError``.
        manufacturer: First field of ``*IDN?``; newer units report ``Keysight Technologies``.
        light_wavelength_nm: Returns the wavelength of the light at a channel, in nanometres; 1550 nm by default.
        light_at: Returns the light at a channel at a past time; by default the light is interpolated linearly between
            two updates.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        power_w: Callable[[int], float],
        *,
        model: str = "N7745A",
        serial: str = "DE00000001",
        n_ports: int = 8,
        manufacturer: str = "Agilent Technologies",
        firmware: str = "1.02.00",
        light_wavelength_nm: Callable[[int], float] | None = None,
        light_at: Callable[[int, float], Light] | None = None,
    ) -> None:
        if not 1 <= n_ports <= 14:
            raise ConfigError(f"an N77xx has 1 to 14 ports, not {n_ports}", device=name)
        wavelength_nm = light_wavelength_nm or (lambda _channel: 1550.0)
        heads = {
            (port, 1): EmulatedHead(
                _power_at(power_w, port),
                _scaled(wavelength_nm, port, 1e-9),
                stream,
                clock.now,
                light_at=None if light_at is None else _light_at(light_at, port),
            )
            for port, stream in enumerate(rng.spawn(n_ports), start=1)
        }
        self._newer = model.endswith("C")  # A models have only the :ALL:CSV? query of the unit
        profile = Profile(f"{manufacturer},{model},{serial},{firmware}", reports_busy=True)
        self._modules = self_as_modules(profile.identity, range(1, n_ports + 1))
        super().__init__(name, clock, profile, heads, MeterTraits(), SuffixRange(1, n_ports))

    def _commands(self) -> Iterable[ScpiCommand]:
        yield from super()._commands()
        yield from slot_commands(self._modules, self._modules)
        yield from self._csv()

    def _csv(self) -> Iterable[ScpiCommand]:
        columns: tuple[tuple[str, Callable[[EmulatedHead], str]], ...] = (
            ("UNIT", lambda head: str(int(head.settings.watts))),
            ("ATIMe", lambda head: keysight_float(head.settings.averaging_s)),
            ("WAVelength", lambda head: keysight_float32(head.settings.wavelength_m)),
            ("RANGe", lambda head: keysight_float(head.present_range())),
        )
        for leaf, column in columns if self._newer else columns[:1]:
            yield query(f":SENSe:POWer:{leaf}:ALL:CSV", self._row(column))

    def _row(self, column: Callable[[EmulatedHead], str]) -> Callable[[Call], Reply]:
        return lambda _: ",".join(column(head) for head in self.heads.values())


def _power_at(function: Callable[[int], float], port: int) -> Callable[[], float]:
    return lambda: function(port)


def _scaled(function: Callable[[int], float], port: int, factor: float) -> Callable[[], float]:
    return lambda: function(port) * factor


def _light_at(function: Callable[[int, float], Light], port: int) -> Callable[[float], Light]:
    return lambda at_s: function(port, at_s)
