"""For those who test: an emulated bench as a pytest fixture, and the promises of every interface as test suites.

The plugin :mod:`lumion_hw.testing.plugin` comes with the package: its fixture ``bench`` needs no import. Drivers of new
instruments are tested with :mod:`lumion_hw.testing.contracts`; :mod:`lumion_hw.testing.wires` puts an emulated device
behind a wire that can be cut and disturbed.
"""
