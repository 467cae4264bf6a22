"""Access to the memory of a pluggable module: registers (SFP), pages (CMIS), and the adapters and bridges."""
