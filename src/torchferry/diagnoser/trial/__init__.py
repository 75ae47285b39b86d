"""One attempt to export one piece, apart from the rest, and its verdict."""
