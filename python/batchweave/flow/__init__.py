"""Threads, and work that many want and one does."""
