"""The emulated chip: what its cells, heaters, joints, facets and photodiodes do, written from the literature.

Nothing here is shared with the model that a calibration fits (``lumion_hw.mesh``, ``calibration``): of the mesh only
its graph is used, which waveguide goes where, and the elimination of a sparse matrix, which is no physics.
"""
