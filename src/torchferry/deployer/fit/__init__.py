"""Which weights take how few bits: sensitivity, calibration, ranges."""
