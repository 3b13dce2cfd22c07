"""Finding, verifying, staging and committing manifests. Twin of src/log."""
