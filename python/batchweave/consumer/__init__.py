"""From the log to the shares of one rank. Twin of src/consumer."""
