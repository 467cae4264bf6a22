"""Light through the emulated bench, and the hidden truth of its chip."""
