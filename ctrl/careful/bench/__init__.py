"""P2's experiments on real engines (`carefulctl bench`): careful and traditional compared.

Owns the list of experiments, the hosts, and the rounds in which the two protocols take turns. Each
node is the C program careful-p2.
"""
