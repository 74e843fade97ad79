"""What is trained for a page: a spec, its run, its JSON, its page. Studies may use everything, nothing uses them."""
