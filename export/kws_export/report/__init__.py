"""The comparison of many runs: tables, findings, plots."""
