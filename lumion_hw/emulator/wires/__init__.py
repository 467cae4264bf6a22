"""Connections of emulated devices to hosts (serial line, TCP, pseudo-terminal, HiSLIP), and their power and cable."""
