"""A month on a real Slurm cluster, in minutes: real daemons, the real service in mode auto, and jobs whose fate is known."""
