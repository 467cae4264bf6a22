"""Physics of the emulated chip, from literature: cells, heaters, waveguide joints, facets, photodiodes.

It shares nothing with the model that a calibration fits (``lumion_hw.mesh``, ``calibration``), except the graph of the
mesh (which waveguides are connected) and the solver of sparse linear equations.
"""
