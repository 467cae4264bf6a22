"""Kinds of devices that a bench file may contain, one module per kind or family. Modules are imported on first use."""
