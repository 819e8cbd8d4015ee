"""Many tuned models side by side."""
