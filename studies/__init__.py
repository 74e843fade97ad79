"""What is trained or measured for a page: a script, its rows as JSON, and the page."""
