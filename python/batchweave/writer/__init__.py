"""From samples to batches of the grid: rows, packing, sources that say where they stand. Only Python has this room; it stands on the producer."""
