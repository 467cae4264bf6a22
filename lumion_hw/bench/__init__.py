"""The bench file and what it opens: YAML to a checked model, to connected devices and their wiring."""
