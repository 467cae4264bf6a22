"""From readings to parameters, and how well they are known."""
