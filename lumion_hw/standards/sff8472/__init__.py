"""SFP and SFP+ memories after SFF-8472, as data."""
