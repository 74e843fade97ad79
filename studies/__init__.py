"""What is trained for a page: a spec, its data as JSON, and the page."""
