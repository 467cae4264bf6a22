"""The page of a served bench: one process, no build step, nothing from elsewhere; reads by default."""
