"""Theorem 2(1) and 2(3) of the head-count paper as networks with certificates, and one outside its assumptions."""
