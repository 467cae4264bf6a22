"""Drivers: one file per instrument family, all of them from public documents, none of them aware of an emulator."""
