"""careful's wire format for scapy, generated from the C declarations when it is imported.

>>> from careful.wire.layers import CarefulHdr, CarefulAm, CarefulCtrl
"""
