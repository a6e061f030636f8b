"""Measure a stream on recordings and choose its thresholds from them."""
