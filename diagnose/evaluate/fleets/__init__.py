"""Orders in, ends out: where pieces of work run. This machine, Ray, or Slurm."""
