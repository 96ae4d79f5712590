"""Speculation measured side by side: questions, configurations, tables and reports."""
