"""A package of a lab of its own, which adds one kind of device (tests/bench/test_kinds_of_others.py)."""
