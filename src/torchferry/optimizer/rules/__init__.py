"""Rewrites of one family a file; `torchferry.optimizer.plan` says when each is tried."""
