"""What the pages of the course need and the science does not."""
