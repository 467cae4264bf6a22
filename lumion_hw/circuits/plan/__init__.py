"""Planning of circuits: paths, heater currents and link budgets. No device is used.

Private: import from :mod:`lumion_hw.circuits`.
"""
