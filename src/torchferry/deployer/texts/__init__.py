"""Plain English, written for this: what calibration sees, and what it does not see."""
