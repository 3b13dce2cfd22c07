"""Bytes and values, pure: the code behind FORMAT.md. Twin of src/format."""
