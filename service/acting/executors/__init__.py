"""Ways to act on a cluster: an approved order in, an outcome out. ``executor`` is what they have in common."""
