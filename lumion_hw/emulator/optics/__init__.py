"""Light on the emulated bench, and the true parameters of its chip."""
