"""Verification: the exported model beside PyTorch's, at recorded sizes and at others.

Read `verify`, then `sizes` (which ones), `trials` (apart from this process), `limits` (where it
is right).
"""
