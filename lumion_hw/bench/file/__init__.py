"""The bench file: data models, checks, kinds of devices, and loader."""
