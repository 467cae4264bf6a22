"""Memories of SFP and SFP+ modules after SFF-8472, as data."""
