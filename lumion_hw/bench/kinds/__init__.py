"""One file per kind of device, or per family that is one thing; each is loaded when a bench names it."""
