"""Dumps as people posted them (excerpts of hexadecimal), with their public addresses, and writers of each form."""

from __future__ import annotations
