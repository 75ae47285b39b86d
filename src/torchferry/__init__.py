"""torchferry."""
