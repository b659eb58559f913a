"""A number of rounds -> how many of each fault, and what was lost of what a service had acknowledged.

faults      what is done to a service, its disk, its clock and its database
rounds      what clients send meanwhile, and whether all of it is there afterwards
"""

__all__ = ["faults", "rounds"]
