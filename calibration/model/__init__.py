"""The physics: what a mesh is described by, what its monitors should read, and how likely readings are.

Begin in ``parameters.py`` (one point in the space of meshes), then ``mesh_model.py`` (from there to photocurrents and
their derivatives) and ``likelihood.py`` (how well these explain what was read). ``space.py`` makes a vector of the
parameters, ``gauge.py`` says which joint phases can be seen, ``priors.py`` what is known beforehand, and
``normal_equations.py`` gathers what a fit needs. ``ideal_mesh.py`` has the simple models of the first search.
"""
