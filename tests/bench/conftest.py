"""A small bench for the tests of bench files: two servers with one module each, one spare without a pair."""

import pytest

SMALL = """\
version: 1
name: small
devices:
  mesh0: {kind: lumion-mesh, serial: A1}
  meter0: {kind: keysight-n77xx, model: N7744A}
  sfp-a: {kind: sfp-8472}
  sfp-b: {kind: sfp-8472}
  sfp-c: {kind: sfp-8472}
  pol-a: {kind: oz-epc04}
  pol-b: {kind: oz-epc04}
mesh:
  controller: mesh0
wiring:
  inputs:
    - {transponder: sfp-a, port: 0, polarization: pol-a, loss_db: 0.5, gain_db: 10}
    - {transponder: sfp-b, port: 1}
    - {transponder: sfp-c, port: 2}
  outputs:
    - {port: 3, transponder: sfp-a, tap: {meter: meter0, channel: 1, fraction: 0.1}}
    - {port: 4, transponder: sfp-b}
    - {port: 5, transponder: sfp-c}
servers:
  - {name: a, nics: [sfp-a]}
  - {name: b, nics: [sfp-b]}
  - {name: c, nics: [sfp-c]}
fabric:
  pairs: [[a, b]]
  spares: [c]
"""


@pytest.fixture
def small() -> str:
    return SMALL
