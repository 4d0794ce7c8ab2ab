"""`make demo-kafka`: eight of ten nodes are lost, and every row is counted."""
