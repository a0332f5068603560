"""Uncertainty, mutual information and Fisher information."""
