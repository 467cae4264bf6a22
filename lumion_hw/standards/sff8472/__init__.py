"""Register map of SFP and SFP+ modules (SFF-8472)."""
