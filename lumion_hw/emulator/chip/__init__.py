"""Physics of the emulated chip, from literature: cells, heaters, waveguide joints, facets, photodiodes.

A calibration fits a different model (``lumion_hw.mesh``, ``calibration``). The two share only the graph of the mesh
(which waveguides are connected) and the solver of sparse linear equations.
"""
