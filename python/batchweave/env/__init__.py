"""Chance: random names. Twin of src/env."""
