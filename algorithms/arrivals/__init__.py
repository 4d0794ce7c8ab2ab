"""Plans that reckon with nodes that are still to come: the area under the priorities of available queries over time."""
