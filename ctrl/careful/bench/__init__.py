"""P2's experiments on real engines (`carefulctl bench`): careful and traditional compared.

Each node is the C program careful-p2.
"""
