"""Access to the memory of pluggable modules as registers (SFP) or pages (CMIS)."""
