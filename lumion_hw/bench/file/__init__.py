"""The bench file: its data models and checks, the kinds of devices it may contain, and the loader."""
