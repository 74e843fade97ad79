"""Born a Transformer - Always a Transformer? (Jobanputra et al. 2025)."""
