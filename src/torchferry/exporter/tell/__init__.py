"""What an export found, as a report."""
