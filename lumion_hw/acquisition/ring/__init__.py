"""Resonances of ring resonators in swept spectra."""
