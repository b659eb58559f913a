"""Requests in; answers out: one router per noun. ``bodies`` says what they take and answer."""
