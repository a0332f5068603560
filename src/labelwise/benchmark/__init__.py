"""Benchmarks: data sets, the experiments of the papers, runs, statistics and reports."""
