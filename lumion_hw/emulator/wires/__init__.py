"""Connections of emulated devices to hosts (serial line, TCP, pseudo-terminal, HiSLIP), with power and cable."""
