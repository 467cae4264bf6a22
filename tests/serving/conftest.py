"""Fixtures of :mod:`serving_bench`, for all tests of this folder."""

from tests.serving.serving_bench import client, lease, served  # noqa: F401
