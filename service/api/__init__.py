"""Requests in, answers out: one router per noun. ``bodies`` has what they take and answer."""
