"""Finding and holding the polarization that the mesh takes: the search, its mathematics, and tracking."""
