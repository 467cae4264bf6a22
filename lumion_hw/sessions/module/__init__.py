"""Ways to the memory of a pluggable module: registers (SFP), pages (CMIS), and adapters, bridges, files below them."""
