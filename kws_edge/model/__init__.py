"""One model file and what it says of a clip: features, network, evidence, abstention."""
