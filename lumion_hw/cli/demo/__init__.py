"""``lumion demo``: calibrate an emulated bench, set up circuits, and replace a failed server."""
