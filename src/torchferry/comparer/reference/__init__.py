"""The side that is taken to be right, and what it leaves open."""
