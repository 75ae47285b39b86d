"""One command a file: a typer function that calls the rooms and returns a `Report`."""
