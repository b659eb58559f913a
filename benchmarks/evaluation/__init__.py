"""How much sooner are the scores of a checkpoint known, and does that hold when something dies? See ``__main__``."""
