"""The picking loop of greedy strategies."""
