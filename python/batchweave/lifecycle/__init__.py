"""Checkpoints and how far producers may be ahead of them. Twin of the part of src/lifecycle that trainers need."""
