"""``lumion demo``: the main job on the emulated bench."""
