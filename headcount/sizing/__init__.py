"""How many heads for a real model: what each shape costs, what is known of its quality, and what would settle it."""
