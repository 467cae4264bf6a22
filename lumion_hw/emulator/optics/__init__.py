"""Light on the emulated bench, and the hidden parameters of its chip."""
