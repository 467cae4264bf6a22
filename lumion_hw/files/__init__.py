"""Files that somebody named: read within bounds, written over nothing of others, shown without taking effect."""
