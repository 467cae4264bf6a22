"""Register maps of public standards, as data."""
