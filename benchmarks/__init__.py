"""Benchmarks: speed as a ratio against peers in one run, correctness checked in the same run. Never a timed test."""
