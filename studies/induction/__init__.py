"""Induction heads: training in stages, to the published end."""
