"""The lower bound made visible: two sequences that too few heads cannot tell apart, found, measured and drawn."""
