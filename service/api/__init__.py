"""The routes, one router a noun."""
