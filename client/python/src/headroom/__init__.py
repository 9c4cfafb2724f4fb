"""Headroom for Python."""
