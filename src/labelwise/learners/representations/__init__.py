"""Representations of items: read off a trained network, in batches, into memory or files."""

from labelwise.learners.representations.reader import Fitted, NetworkReader

__all__ = ["Fitted", "NetworkReader"]
