"""A number of rounds -> what people, Slurm and the service did at the same moment, and whether anything was done twice or
against a person.

rounds      jobs that fail on a real Slurm cluster while somebody meddles, and what must hold afterwards
"""

__all__ = ["rounds"]
