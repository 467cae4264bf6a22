"""Connections of emulated devices: serial lines, TCP, pseudo-terminals, HiSLIP, power supply and cable."""
