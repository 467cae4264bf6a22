"""How a mesh is measured: from light at the ports alone to heater laws, passive phases and losses.

The procedure never sees the emulator's hidden truth; it drives a controller and reads monitors through the same
interfaces as any lab script. :func:`calibration.run.procedure.calibrate` runs it, ``lumion-calibrate`` is its command
line.
"""
