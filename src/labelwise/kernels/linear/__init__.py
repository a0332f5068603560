"""Leverage scores, Lewis weights and barrier sampling."""
