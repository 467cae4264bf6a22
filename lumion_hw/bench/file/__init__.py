"""The bench file: its models and checks, the kinds of devices it may name, and the loader."""
