"""A function that serves an emulated power meter on TCP and by HiSLIP (docs/instruments.md)."""

import numpy as np

from lumion_hw import SystemClock
from lumion_hw.emulator import EmulatorServer, Light, ThorlabsPm100


def serve_a_meter(seconds: float) -> None:
    """Serve a PM100D in 100 µW of light on TCP and by HiSLIP."""
    clock = SystemClock()
    meter = ThorlabsPm100("pm0", clock, np.random.default_rng(1), lambda: Light(100e-6, 1550.0))
    with EmulatorServer(clock) as server:
        print(server.add_tcp(meter), server.add_hislip(meter))
        with server.in_thread():
            clock.sleep(seconds)
