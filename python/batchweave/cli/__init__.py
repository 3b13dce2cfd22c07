"""The commands of a node without Node.js. Twin of src/cli."""
