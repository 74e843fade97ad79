"""Every law with its claimed and its measured exponent; the learning-rate law among them."""
