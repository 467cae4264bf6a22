"""Register map of SFP and SFP+ modules according to SFF-8472, as data."""
