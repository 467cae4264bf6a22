"""The procedure, stage by stage: planned, measured, kept in a journal, verified, renewed."""
