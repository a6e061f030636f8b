"""The workstation side of kws-edge: training, calibration and export. Imports torch; kws_edge never imports this."""
