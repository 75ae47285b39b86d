"""The command line: one file a command; `main` shows what a command returns."""
