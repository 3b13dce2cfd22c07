"""What happens, as numbers and spans. Twin of src/observe."""
