"""The program before it is translated: nothing is written in place, every operator is known."""
