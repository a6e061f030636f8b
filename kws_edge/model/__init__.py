"""Load a model file and classify clips: features, network, evidence, abstention."""
