"""The cache folder with toy encoders."""

from tests.benchmark.encoders.toy_encoders import folder  # noqa: F401
