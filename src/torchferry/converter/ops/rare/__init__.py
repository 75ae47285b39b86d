"""What few models need: a newcomer may leave this folder closed."""
