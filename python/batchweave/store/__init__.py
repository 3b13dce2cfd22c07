"""Six calls on immutable objects, the backends and the probe. Twin of src/store."""
