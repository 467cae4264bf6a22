"""The web page of a served bench: no external resources, read-only by default."""
