"""What lowerings write with: nothing here registers one."""
