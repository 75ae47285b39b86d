"""Both sides run: what they take, piece by piece, window by window."""
