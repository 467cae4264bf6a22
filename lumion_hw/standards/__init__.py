"""Register maps of pluggable modules from public standards (CMIS, SFF-8472)."""
