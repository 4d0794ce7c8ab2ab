"""What is kept below the checkpoint location: checkpoints, source ranges, what may be released, epochs and revisions."""
