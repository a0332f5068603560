"""Pools on a Ray cluster."""
