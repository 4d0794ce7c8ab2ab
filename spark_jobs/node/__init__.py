"""A node's side of the data plane: the partition host, the state of its partitions, and the messages between them."""
