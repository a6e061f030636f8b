"""MatchboxNet and the evidential head in torch."""
