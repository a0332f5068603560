"""Experiments on real data, and the demonstration."""
