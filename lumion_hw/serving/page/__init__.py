"""The web page of a served bench: no build step, no external resources, read-only by default."""
