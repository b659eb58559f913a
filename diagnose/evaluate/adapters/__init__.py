"""Harnesses -> the two commands of a plan: one that runs the model, one that scores what it said."""
