"""Selections: from a request through validation and planning to the picks."""

from labelwise.selection.result import Selection

__all__ = ["Selection"]
