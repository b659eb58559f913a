"""Lines and documents of dumps in; who stood where, and which collectives were open, as typed values out."""

__all__ = ["documents", "flight_recorder", "plain_pickle", "ras", "reader", "stacks", "text"]
