"""The emulated bench: devices that speak the same bytes as the hardware, over one optical world, seed and clock."""
