"""Emulator and driver of an invented SCPI power meter that differs from the template (docs/cookbook/driver.md)."""

from lumion_hw import DeviceError, LimitError, VirtualClock, w_from_dbm
from lumion_hw.drivers import ScpiDriver
from lumion_hw.emulator.scpi import (
    Numeric,
    PendingReply,
    Profile,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
    event,
    number_setting,
    query,
)
from lumion_hw.interfaces import PowerReading, RangeState
from lumion_hw.testing import wired


class EmulatedSol(ScpiDevice):
    """An instrument that returns dBm or a word, accepts metres, and zeroes for three seconds without a reply."""

    def __init__(self, name, clock):
        super().__init__(name, clock)
        self.power_dbm, self.wavelength_m = -20.0, 1.55e-6
        self._scpi = ScpiInstrument(name, clock, Profile("SOL,M1,7,1.0"), lambda: None)
        wavelength = Numeric(1.2e-6, 1.7e-6, 1.55e-6)
        self._scpi.declare(
            [
                query(":POWer", lambda _: f"{self.power_dbm:.2f}" if self.power_dbm > -50.0 else "UNDER"),
                number_setting(":WAVelength", wavelength, lambda _: self.wavelength_m, self.tune, "{:.6E}".format),
                event(":ZERO", lambda _: self.zero()),
            ]
        )

    def tune(self, _call, wavelength_m):
        """Set the wavelength of the sensor."""
        self.wavelength_m = wavelength_m

    def zero(self):
        """Start zeroing, which takes three seconds."""
        due_s = self.now() + 3.0
        return PendingReply(lambda: due_s, self.end_of_zero)

    def end_of_zero(self):
        """End zeroing; it fails if light arrives."""
        if self.power_dbm > -50.0:
            raise ScpiError(-200)  # the code from the manual; `ScpiInstrument` queues it with its message


WORDS = {"UNDER": RangeState.UNDER, "OVER": RangeState.OVER}


class Sol(ScpiDriver):
    """The driver of the power meter."""

    kind, makers, models = "meter", ("SOL",), ("M1",)

    def open(self):
        """Check maker and model."""
        self._identify()

    def read(self, channel):
        """Return the power, or the state of the range if there is no number."""
        with self._session.transaction():
            text = self._session.query("POW?", 2.0)
            if text in WORDS:
                return PowerReading(channel, WORDS[text], self._clock.now())
            try:
                power_w = w_from_dbm(float(text))
            except ValueError:
                raise self._scpi.wrong_shape("POW?", text, "a power in dBm, UNDER or OVER") from None
            return PowerReading(channel, RangeState.OK, self._clock.now(), power_w)

    def set_wavelength_nm(self, channel, wavelength_nm):
        """Set the wavelength of the sensor."""
        self._scpi.check_in_range("wavelength", wavelength_nm, 1200.0, 1700.0, "nm")  # from the data sheet
        self._scpi.set_number("WAV", f"{1e-9 * wavelength_nm:.6E}", wavelength_nm, 1e9, 0.01, "wavelength in nm")

    def set_range_dbm(self, channel, range_dbm):
        """Accept the only range of the meter."""
        if range_dbm not in (None, 10.0):  # the only range
            raise self._session.error(LimitError, "range", requested=range_dbm, limit=10.0, unit="dBm")

    def zero(self):
        """Zero the sensor in the dark, in three seconds."""
        with self._session.transaction():
            self._session.write("ZERO")
            self._clock.sleep(3.0)
            failures = self._scpi.errors()
        if failures:
            code, text = failures[0]
            raise self._session.error(DeviceError, f"zeroing failed: {code} {text}", code=code, command="ZERO")


clock = VirtualClock()
meter = EmulatedSol("meter0", clock)
with wired(meter, "memory", clock) as wire, Sol(wire.link(), clock, device="meter0") as driver:
    driver.set_wavelength_nm(1, 1310.0)
    print(driver.read(1), meter.wavelength_m)
    try:
        driver.zero()
    except DeviceError as error:
        print(error)
    meter.power_dbm = -70.0
    driver.zero()
    print(driver.read(1).state)
