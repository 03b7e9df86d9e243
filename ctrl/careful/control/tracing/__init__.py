"""Records of the datapath's stages, and captured frames."""
