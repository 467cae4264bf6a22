"""Fixtures of the tests of integrations."""

from tests.serving.serving_bench import served  # noqa: F401
