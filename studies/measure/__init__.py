"""What `measure` says of data whose answer is known: planted look-ups, means, letters, noise; and of real sets."""
