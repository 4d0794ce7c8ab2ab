"""Entry of the project's image: the first argument says which of its processes a pod is."""
