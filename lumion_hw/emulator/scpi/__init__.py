"""A SCPI and IEEE 488.2 engine for emulated instruments, without I/O.

An instrument is data plus handlers: a :class:`Profile` (identity, terminator, queue depth), a list of commands in the
spelling of its manual, and small functions that read and change its state::

    instrument = ScpiInstrument("pm0", clock, Profile("Maker,Model,SN,1.0"), on_reset=meter.reset)
    instrument.declare(
        [
            query("[:SENSe[n]]:POWer", meter.power),
            number_setting("[:SENSe[n]]:CORRection:WAVelength", WAVELENGTH, meter.get_wl, meter.set_wl, keysight_float),
        ], {"n": SuffixRange(1, 4)},
    )

The modules of this package are private; import from the package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
