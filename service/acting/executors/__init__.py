"""Ways to act on a cluster: an approved order in, an outcome out. ``executor`` has what they share."""
