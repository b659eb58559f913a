"""Lines and documents of dumps in; who stood where, and which collectives were open, out."""

__all__ = ["documents", "flight_recorder", "plain_pickle", "ras", "reader", "stacks", "text"]
