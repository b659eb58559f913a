"""What is found for a model that has to explain a failure.

__main__    is the root line among the lines that are chosen for it?
meaning     would embeddings find past incidents and known messages that words do not find?
"""
