"""Options, output and helpers that several commands share."""
