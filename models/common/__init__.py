"""What the scripts that write the reference models share."""
