"""Pools: items under stable ids, their representations, and where the rows are kept."""

from labelwise.pool.pool import Pool

__all__ = ["Pool"]
