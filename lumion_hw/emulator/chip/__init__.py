"""Physics of the emulated chip: cells, heaters, joints, facets and photodiodes, modelled from the literature.

It shares nothing with the model that a calibration fits (``lumion_hw.mesh``, ``calibration``), except the graph of the
mesh (which waveguides are connected) and the elimination of a sparse matrix.
"""
