"""Sparse approximation of the pool's gradient: greedy and iterative hard thresholding."""
