"""Recipes, losses, the optimiser and the loop."""
