"""Client of a bench that another process serves."""
