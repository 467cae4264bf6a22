"""``lumion demo``: calibrate, connect, break and recover an emulated bench."""
