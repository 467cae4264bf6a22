"""Codecs of instrument protocols as pure functions: bytes of requests and content of replies."""
