"""The `semistream` command."""
