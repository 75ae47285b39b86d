"""Why a piece fails: the line, what to do, and a script that fails alone."""
