"""P2's experiments on real engines (`carefulctl bench`): careful and traditional side by side.

Owns which experiments there are, the hosts that they run on, and the rounds in which the two
protocols take turns. A node's part is the C program careful-p2. What comes out is shown by
careful.render.
"""
