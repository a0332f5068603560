"""Numerical building blocks over blocks of rows; no strategy, no model."""
