"""A fault, a rank and a number of ranks -> what real ranks print over gloo, and whether the diagnosis names the first to go.

plan        what happens to one job
rank        one rank that trains, and the faults that it can meet
alone       many jobs whose ranks nobody watches, as processes of one program
launched    one job under torchrun
named       a folder of logs -> whom the diagnosis suspects
"""

__all__ = ["alone", "launched", "named", "plan", "rank"]
