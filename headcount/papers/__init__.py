"""Recipes above all rooms: the first look, the table of theorems, and one file a paper."""
