"""Hints of life that processes leave beside the log, for people who look. Twin of src/pulse."""
