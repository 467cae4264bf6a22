"""Physics of the emulated chip: cells, heaters, waveguide joints, facets and photodiodes.

A calibration fits a different model, ``lumion_hw.mesh``.
"""
