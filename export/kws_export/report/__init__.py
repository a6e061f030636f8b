"""Compare many runs: tables, findings, plots."""
