"""From append to an acknowledgement. Twin of src/producer."""
