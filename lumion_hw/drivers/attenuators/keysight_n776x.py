"""Driver for Keysight (Agilent) N776xA variable attenuators, and for the attenuators in an N7751A or N7752A.

Source: N77xx Series Programming Guide, "Signal Conditioning". Attenuator ``n`` is slot ``2n - 1``.
"""

from __future__ import annotations

from functools import partial

from lumion_hw.drivers.held_setup import HeldSetting, HeldSetup
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.scpi import KEYSIGHT_IGNORABLE_ERRORS, ScpiDriver
from lumion_hw.errors import ConfigError, DeviceTimeoutError
from lumion_hw.interfaces import AttenuatorLimits, AttenuatorSettings

CHANNELS = {"N7761A": 1, "N7762A": 2, "N7764A": 4, "N7766A": 2, "N7768A": 4, "N7751A": 1, "N7752A": 2}
STEP_DB = 1e-3
"""Attenuations are rounded to this step; the guide states no step (unverified)."""
_TOLERANCE_DB = 5.1e-3
_WAVELENGTH_TOLERANCE_NM = 1e-3  # sent as float32 in metres
_POLL_S = 0.02
_TIMEOUT_S = 5.0


class KeysightN776x(ScpiDriver):
    """Driver of one instrument; implements ``VariableAttenuator``. Thread-safe; every setting is read back.

    Opening sets the offset of the displayed attenuation to zero and switches the output power control off; the filter
    does not move. The link is a raw socket (port 5025) or VISA; a model is, for example, ``N7764A``. Arguments as for
    :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
    """

    kind = "attenuator"
    makers = ("KEYSIGHT", "AGILENT")
    models = tuple(CHANNELS)
    ignorable_errors = KEYSIGHT_IGNORABLE_ERRORS
    _displays: dict[int, HeldSetup]
    """Settings on which the displayed attenuation depends, by slot; checked at every reading."""
    _filters: dict[int, HeldSetup]
    """Other settings on which the light depends, by slot; checked at every reading."""

    def open(self) -> None:
        """Open the link, check the identity, and set the offsets of the displayed attenuations to zero.

        Raises the errors of :meth:`Driver.open`, and ``DeviceError`` if the instrument refuses a setting.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._scpi.errors()  # discard errors of earlier users
            slots = [_slot(channel) for channel in self.channels]
            self._displays = {slot: HeldSetup(self._session) for slot in slots}
            self._filters = {slot: HeldSetup(self._session) for slot in slots}
            for slot in slots:
                self._hold(self._filters[slot], f"OUTP{slot}:POW:CONTR", "0", 0.0, 1.0, 0.0, "power control (0 is off)")
                self._hold(self._displays[slot], f"INP{slot}:OFFS", "0", 0.0, 1.0, _TOLERANCE_DB, "offset in dB")

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel numbers of the attenuators, from 1."""
        return tuple(range(1, CHANNELS[self.model.upper()] + 1))

    def set_attenuation_db(self, channel: int, attenuation_db: float) -> None:
        """Set the attenuation and wait for the filter; see :meth:`VariableAttenuator.set_attenuation_db`."""
        slot = self._checked_slot(channel)
        header, setup = f"INP{slot}:ATT", HeldSetup.merge((self._displays[slot], self._filters[slot]))
        with self._session.transaction():
            setup.restore_changed()  # the limits depend on the offset
            self._scpi.check_limits(header, "attenuation", attenuation_db, 1.0, "dB")
            before_db, speed_db_per_s = self._scpi.setting(f"{header}?"), self._scpi.setting(f"{header}:SPE?")
            self._scpi.set(f"{header} {attenuation_db:.3f}DB")
        self._wait(header, abs(attenuation_db - before_db) / max(speed_db_per_s, 1e-3))
        # Read only now: while the filter moves, the reply is its present attenuation.
        actual_db = self._scpi.setting(f"{header}?", setup)
        self._scpi.verify("attenuation in dB", attenuation_db, actual_db, _TOLERANCE_DB)

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength to which attenuations apply; see :meth:`VariableAttenuator.set_wavelength_nm`."""
        slot = self._checked_slot(channel)
        header, text = f"INP{slot}:WAV", f"{wavelength_nm:.4f}NM"
        with self._session.transaction():
            self._scpi.check_limits(header, "wavelength", wavelength_nm, 1e9, "nm")
            tolerance_nm, label = _WAVELENGTH_TOLERANCE_NM, "wavelength in nm"
            self._hold(self._filters[slot], header, text, wavelength_nm, 1e9, tolerance_nm, label)
        self._wait(header, 0.0)

    def enable(self, channel: int) -> None:
        """Open the shutter."""
        slot = self._checked_slot(channel)
        with self._session.transaction():
            speed_db_per_s = self._scpi.setting(f"INP{slot}:ATT:SPE?")
            span_db = self._scpi.setting(f"INP{slot}:ATT? MAX")
            self._switch(slot, True)
        self._wait(f"OUTP{slot}:STAT", span_db / max(speed_db_per_s, 1e-3))

    def disable(self, channel: int) -> None:
        """Close the shutter."""
        slot = self._checked_slot(channel)
        self._switch(slot, False)
        self._wait(f"OUTP{slot}:STAT", 0.0)

    def settings(self, channel: int) -> AttenuatorSettings:
        """Return the present settings."""
        slot = self._checked_slot(channel)
        with self._session.transaction():
            return AttenuatorSettings(
                attenuation_db=self._scpi.setting(f"INP{slot}:ATT?", self._displays[slot]),
                wavelength_nm=1e9 * self._scpi.setting(f"INP{slot}:WAV?"),
                passing=bool(self._scpi.setting(f"OUTP{slot}:STAT?")),
            )

    def limits(self, channel: int) -> AttenuatorLimits:
        """Return the limits of the settings."""
        slot = self._checked_slot(channel)
        setting = self._scpi.setting
        with self._session.transaction():
            self._displays[slot].restore_changed()
            return AttenuatorLimits(
                attenuation_db=(setting(f"INP{slot}:ATT? MIN"), setting(f"INP{slot}:ATT? MAX")),
                attenuation_step_db=STEP_DB,
                wavelength_nm=(1e9 * setting(f"INP{slot}:WAV? MIN"), 1e9 * setting(f"INP{slot}:WAV? MAX")),
                shutter=True,
            )

    def _hold(
        self, setup: HeldSetup, header: str, text: str, value: float, scale: float, tolerance: float, label: str
    ) -> None:
        restore = partial(self._scpi.set_number, header, text, value, scale, tolerance, label)
        restore()
        setup.hold(HeldSetting(f"{header}?", value / scale, label, restore, tolerance / scale))

    def _switch(self, slot: int, on: bool) -> None:
        self._scpi.set_number(f"OUTP{slot}:STAT", str(int(on)), float(on), 1.0, 0.0, "shutter")

    def _wait(self, header: str, duration_s: float) -> None:
        deadline = self._clock.now() + duration_s + _TIMEOUT_S
        while not self._scpi.setting("*OPC?"):
            if self._clock.now() >= deadline:
                raise self._session.error(
                    DeviceTimeoutError,
                    f"{header}: the filter is still moving {duration_s + _TIMEOUT_S:.3g} s after the command",
                    command=header,
                    hint="Check the instrument's panel for an error.",
                )
            self._clock.sleep(_POLL_S)

    def _checked_slot(self, channel: int) -> int:
        if channel not in self.channels:
            raise self._session.error(
                ConfigError,
                f"there is no channel {channel}",
                hint=f"A {self.model} has the channels {', '.join(map(str, self.channels))}.",
            )
        return _slot(channel)


def _slot(channel: int) -> int:
    return 2 * channel - 1
