"""Codecs of instrument protocols: pure functions that encode requests as bytes and decode replies."""
